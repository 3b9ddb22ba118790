#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "graph/op.h"
#include "plan/ahead.h"
#include "plan/place.h"

enum { WINDOW = 64 << 20 }; /* bytes that are brought ahead of their use, where there is room */

static sn_status no_memory(void) { return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a plan"); }

/* What of n elements in such units this rank holds on an axis of the mesh; *at: of those, where it begins. */
static int64_t share_of(int64_t n, const sn_split_axis *x, int size, int index, int64_t *at) {
    *at = 0;
    if (!sn_is_flat(x) && x->at == SN_DEAL_FOLDED) return n / size; /* no run of it; every share is full */
    int64_t unit = x->unit > 0 ? x->unit : 1, units = (n + unit - 1) / unit, shard = (units + size - 1) / size * unit;
    *at = shard * index < n ? shard * index : n;
    return n - *at < shard ? n - *at : shard;
}

/* The same of a dimension that may hold three matrices beside each other: a share of each, and where it begins in one. */
static int64_t share_of_dim(int64_t n, const sn_split_axis *x, int size, int index, int64_t *at) {
    return x->at == SN_DEAL_THIRDS ? 3 * share_of(n / 3, x, size, index, at) : share_of(n, x, size, index, at);
}

sn_shape sn_local_block(const sn_shape *logical, const sn_split *split, const sn_mesh *mesh, int rank, int64_t begin[SN_MAX_DIMS]) {
    sn_shape s = *logical;
    int64_t at;
    for (int d = 0; d < SN_MAX_DIMS; d++) begin[d] = 0;
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &split->axis[a];
        if (x->kind != SN_SHARD || x->dim >= s.rank) continue;
        s.d[x->dim] = share_of_dim(s.d[x->dim], x, mesh->size[a], sn_mesh_index(mesh, rank, a), &at);
        begin[x->dim] += at;
    }
    return s;
}

sn_shape sn_local_shape(const sn_shape *logical, const sn_split *split, const sn_mesh *mesh, int rank, int64_t *first) {
    int64_t begin[SN_MAX_DIMS], at;
    sn_shape s = sn_local_block(logical, split, mesh, rank, begin);
    if (first) *first = 0;
    if (!sn_split_holds(split, mesh, rank)) return sn_shape_of(0);
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &split->axis[a];
        if (!sn_is_flat(x)) continue;
        int64_t n = 1;
        for (int i = 0; i < s.rank; i++) n *= s.d[i];
        s = sn_shape_of(share_of(n, x, mesh->size[a], sn_mesh_index(mesh, rank, a), &at));
        if (first) *first += at;
    }
    return s;
}

/* One program at work. */
typedef struct planner {
    const sn_job *job;
    const sn_graph *g;
    const sn_plan_request *request;
    sn_plan *plan;
    sn_planned *out;
    uint32_t *first, *last; /* by value: instructions that define it and use it last */
    uint32_t *root;         /* by value: the value whose bytes it shares */
    uint64_t *bytes, *offset;
    sn_turn_span *node_turns, *turns, *held; /* by node; by value: in which it is touched, in which its bytes are held */
    bool *staged;           /* by root: whole blocks of the disk are read or written there */
    sn_shape *shape;        /* local */
    bool *here;             /* by value: this rank has it */
    sn_nid *order;          /* of execution: the nodes that this rank runs */
    size_t n_order;
} planner;

static sn_tier tier_of(const sn_value *v) {
    if (v->input || v->output) return SN_TIER_HOST;
    return v->has_rest || v->persistent != SN_NONE ? v->rest.tier : SN_TIER_DEVICE;
}

static bool is_transient(const planner *p, const sn_value *v) {
    return v->persistent == SN_NONE ? !v->input && !v->output : p->plan->persistent[v->persistent].within;
}

static const sn_split *split_of(const sn_value *v) { return v->persistent != SN_NONE ? &v->rest.split : &v->result; }

/* A rank's shard, flat or of rows, of a value that it holds whole. */
static bool is_view(const sn_value *v, const sn_use *u) {
    for (int a = 0; u->has_split && a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &u->split.axis[a];
        if ((sn_is_flat(x) || (x->kind == SN_SHARD && x->dim == 0 && x->at != SN_DEAL_THIRDS)) && split_of(v)->axis[a].kind == SN_WHOLE) return true;
    }
    return false;
}

/* The shape of a view, and the element of the local value at which it begins. */
static sn_shape view_of(const planner *p, const sn_use *u, int64_t *first) {
    const sn_value *v = &p->g->values[u->value];
    const sn_mesh *mesh = &p->job->mesh;
    sn_shape s = p->shape[u->value];
    int64_t row = 1, at;
    *first = 0;
    for (int i = 1; i < s.rank; i++) row *= s.d[i];
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &u->split.axis[a];
        int index = sn_mesh_index(mesh, p->request->rank, a);
        if (x->kind != SN_SHARD || split_of(v)->axis[a].kind != SN_WHOLE) continue;
        if (sn_is_flat(x)) {
            s = sn_shape_of(share_of(row * s.d[0], x, mesh->size[a], index, &at));
            row = 1;
        } else {
            s.d[0] = share_of(s.d[0], x, mesh->size[a], index, &at);
        }
        *first += at * row;
    }
    return s;
}

/* Views are runs of bytes, of what this rank has. */
static sn_status check_splits(const planner *p, const sn_node *n) {
    static const char *const kinds[] = {"whole", "shard", "partial", "at"};
    for (int i = 0; i < n->n_in; i++)
        for (int a = 0; n->in[i].value != SN_NONE && n->in[i].has_split && a < SN_MESH_AXES; a++) {
            const sn_value *v = &p->g->values[n->in[i].value];
            const sn_split_axis *from = &split_of(v)->axis[a], *to = &n->in[i].split.axis[a];
            bool view = from->kind == SN_WHOLE && to->kind == SN_SHARD && (sn_is_flat(to) || (to->dim == 0 && to->at != SN_DEAL_THIRDS));
            if (p->job->mesh.size[a] <= 1 || from->kind == to->kind || view) continue;
            return sn_fail(SN_ERR_PLAN, "%s: %s %s takes %s as %s (dimension %d), which is %s (dimension %d) there", p->g->name, sn_ops[n->op]->name, n->name,
                           v->name ? v->name : "an input", kinds[to->kind], to->dim, kinds[from->kind], from->dim);
        }
    return SN_OK;
}

/* Whether an operand counts on another rank and not on this one: it is added once to a sum of which each rank has a summand. */
static bool is_left_out(const planner *p, const sn_node *n, int i) {
    const sn_op *op = sn_ops[n->op];
    if (!(op->added_once >> i & 1) || n->in[i].value == SN_NONE) return false;
    sn_vid sum = n->n_out && n->out[0] != SN_NONE ? n->out[0] : n->in[0].value;
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (split_of(&p->g->values[sum])->axis[a].kind == SN_PARTIAL && split_of(&p->g->values[n->in[i].value])->axis[a].kind == SN_WHOLE &&
            sn_mesh_index(&p->job->mesh, p->request->rank, a))
            return true;
    return false;
}

/* The shape of a use at this rank, and where it begins in its value. */
static sn_shape use_of(const planner *p, const sn_use *u, uint64_t *begin) {
    const sn_value *v = &p->g->values[u->value];
    sn_shape s = p->shape[u->value];
    const sn_dtype_info *form = &sn_dtypes[v->dtype];
    *begin = 0;
    if (is_view(v, u)) {
        int64_t first;
        s = view_of(p, u, &first);
        *begin = (uint64_t)(first / form->block) * (uint64_t)form->bytes;
        return s;
    }
    if (!u->slice_n) return s;
    int64_t row = 1; /* elements of a row; a vector's blocks are whole, as the graph was verified */
    for (int i = 1; i < s.rank; i++) row *= s.d[i];
    *begin = (uint64_t)(u->slice_at * row / form->block) * (uint64_t)form->bytes;
    s.d[0] = u->slice_n;
    return s;
}

/* What a node reads is made on this rank, or is there from the start. */
static sn_status check_made(const planner *p, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++) {
        sn_vid v = n->in[i].value;
        if (v == SN_NONE) continue;
        bool missing = p->here[v] ? is_transient(p, &p->g->values[v]) && p->first[v] == SN_NONE : !sn_ops[n->op]->comm_axis;
        if (missing)
            return sn_fail(SN_ERR_PLAN, "%s: rank %d runs %s %s, but nothing makes %s there", p->g->name, p->request->rank, sn_ops[n->op]->name, n->name,
                               p->g->values[v].name ? p->g->values[v].name : "one of its inputs");
    }
    return SN_OK;
}

/* Rows are counted in logical coordinates, so a value whose first axis is spread over ranks has no slices yet. */
static sn_status check_slices(const planner *p, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++) {
        sn_vid v = n->in[i].value;
        if (v != SN_NONE && n->in[i].slice_n && p->shape[v].d[0] != p->g->values[v].shape.d[0])
            return sn_fail(SN_ERR_PLAN, "%s: %s %s: input %d is a slice of %s, whose rows are spread over ranks", p->g->name, sn_ops[n->op]->name, n->name, i,
                           p->g->values[v].name ? p->g->values[v].name : "a value");
    }
    return SN_OK;
}

static bool is_held(const planner *p, sn_vid v) { return v != SN_NONE && p->here[v]; }

/* Whether the node reads input i here. What one rank sends another, that one does not read, though it may have it too. */
static bool is_read(const planner *p, const sn_node *n, int i) {
    const sn_op *op = sn_ops[n->op];
    bool sends = !op->comm_from || n->attrs.i[op->comm_from - 1] == sn_mesh_index(&p->job->mesh, p->request->rank, (int)n->attrs.i[op->comm_axis - 1]);
    return sends && is_held(p, n->in[i].value) && !is_left_out(p, n, i);
}

static void local_call(const planner *p, const sn_node *n, sn_call *c) {
    uint64_t begin;
    sn_node_call(p->g, n, c);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value != SN_NONE) c->in[i].shape = is_read(p, n, i) ? use_of(p, &n->in[i], &begin) : (sn_shape){0};
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != SN_NONE) c->out[i].shape = is_held(p, n->out[i]) ? p->shape[n->out[i]] : (sn_shape){0};
}

/* Where each rank has the runs of its own elements, their number follows from what it has of those. */
static sn_shape shape_of(const planner *p, const sn_value *v) {
    int64_t begin[SN_MAX_DIMS], n;
    sn_shape s = v->shape;
    if (v->run) {
        const sn_value *of = &p->g->values[v->runs_of];
        s = sn_local_block(&of->shape, split_of(of), &p->job->mesh, p->request->rank, begin);
        sn_shape_elements(&s, &n);
        s = sn_shape_of((n + v->run - 1) / v->run);
    }
    return sn_local_shape(&s, split_of(v), &p->job->mesh, p->request->rank, NULL);
}

static sn_status measure_values(planner *p) {
    for (size_t v = 0; v < p->g->n_values; v++) {
        const sn_value *x = &p->g->values[v];
        size_t bytes;
        p->shape[v] = shape_of(p, x);
        if (!sn_shape_bytes(&p->shape[v], x->dtype, &bytes)) {
            char text[96];
            return sn_fail(SN_ERR_SHAPE, "%s: value %s %s of form %s has no valid size", p->g->name, x->name ? x->name : "?", sn_shape_text(&x->shape, text),
                           sn_dtype_name(x->dtype));
        }
        p->bytes[v] = sn_round_up(bytes, SN_ALIGN);
        p->first[v] = SN_NONE;
        p->last[v] = 0;
        p->root[v] = (uint32_t)v;
    }
    return SN_OK;
}

enum { USED = 1, USED_HERE = 2 };

/* Whether this rank has a part in a node; `used` says by value how those that come after use it. What only other ranks use is not made
 * here. Communication is kept whatever comes of it: another rank has its part in it too. */
static bool takes_part(const planner *p, const sn_node *n, const uint8_t *used) {
    const sn_op *op = sn_ops[n->op];
    bool keep = op->comm_axis;
    if (!sn_split_holds(&n->where, &p->job->mesh, p->request->rank)) return false;
    for (int i = 0; i < n->n_in; i++) keep |= n->in[i].value != SN_NONE && op->mutates >> i & 1;
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i] == SN_NONE) continue;
        const sn_value *v = &p->g->values[n->out[i]];
        keep |= used[n->out[i]] != USED || v->output || v->persistent != SN_NONE;
    }
    return keep;
}

/* The nodes of the graph that this rank runs. */
static sn_status choose_nodes(planner *p) {
    const sn_graph *g = p->g;
    uint8_t *used = sn_alloc_zero(g->n_values + 1, sizeof *used);
    size_t at = g->n_order;
    if (!used) return no_memory();
    for (size_t v = 0; v < g->n_values; v++) p->here[v] = sn_split_holds(split_of(&g->values[v]), &p->job->mesh, p->request->rank);
    for (size_t k = g->n_order; k-- > 0;) {
        const sn_node *n = &g->nodes[g->order[k]];
        bool here = takes_part(p, n, used);
        if (here) p->order[--at] = g->order[k];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE) used[n->in[i].value] |= here ? USED | USED_HERE : USED;
    }
    p->n_order = g->n_order - at;
    memmove(p->order, p->order + at, p->n_order * sizeof *p->order);
    sn_free(used);
    return SN_OK;
}

static void measure_lifetimes(planner *p) {
    const sn_graph *g = p->g;
    for (size_t k = 0; k < p->n_order; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (is_read(p, n, i)) p->last[n->in[i].value] = (uint32_t)k;
        for (int i = 0; i < n->n_out; i++)
            if (is_held(p, n->out[i])) {
                if (p->first[n->out[i]] == SN_NONE) p->first[n->out[i]] = (uint32_t)k;
                if (p->last[n->out[i]] < k) p->last[n->out[i]] = (uint32_t)k;
            }
    }
}

/* What a node sends on a queue of its own stays until the node that holds it is done. */
static sn_status hold_inputs(planner *p) {
    const sn_graph *g = p->g;
    uint32_t *at = sn_alloc_zero(g->n_nodes + 1, sizeof *at);
    if (!at) return no_memory();
    for (size_t k = 0; k < p->n_order; k++) at[p->order[k]] = (uint32_t)k;
    uint32_t last = 0;
    for (size_t k = 0; k < g->n_order; k++) { /* of a node that another rank runs: of the last before it that this one runs */
        if (at[g->order[k]] > last) last = at[g->order[k]];
        else if (!at[g->order[k]]) at[g->order[k]] = last;
    }
    for (size_t k = 0; k < p->n_order; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        for (int i = 0; n->held != SN_NONE && i < n->n_in; i++)
            if (n->in[i].value != SN_NONE && p->last[n->in[i].value] < at[n->held]) p->last[n->in[i].value] = at[n->held];
    }
    sn_free(at);
    return SN_OK;
}

static void mark_staged(planner *p) {
    const sn_graph *g = p->g;
    for (size_t k = 0; k < p->n_order; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        if (n->op == SN_OP_fetch) p->staged[p->root[n->out[0]]] = true;
        if (n->op == SN_OP_store) p->staged[p->root[n->in[0].value]] = true;
    }
    for (size_t v = 0; v < g->n_values; v++) p->staged[v] |= tier_of(&g->values[v]) == SN_TIER_DISK;
}

static sn_turn_span hull(sn_turn_span a, sn_turn_span b) {
    if (a.first > a.last) return b;
    if (b.first > b.last) return a;
    return (sn_turn_span){a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last};
}

/* An output takes the bytes of an input that dies here, when the op permits it and the sizes agree. */
static void join_aliases(planner *p) {
    const sn_graph *g = p->g;
    for (size_t k = 0; k < p->n_order; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        const sn_op *op = sn_ops[n->op];
        uint32_t taken = 0;
        for (int o = 0; o < n->n_out; o++) {
            sn_vid out = n->out[o];
            if (out == SN_NONE || !op->alias[o] || !is_transient(p, &g->values[out])) continue;
            for (int i = 0; i < n->n_in; i++) {
                sn_vid in = n->in[i].value;
                if (in == SN_NONE || n->in[i].slice_n || is_view(&g->values[in], &n->in[i]) || !(op->alias[o] >> i & 1) || taken >> i & 1 || !is_transient(p, &g->values[in])) continue;
                sn_vid r = p->root[in];
                if (p->last[r] != k || p->last[in] != k || p->bytes[in] != p->bytes[out] || tier_of(&g->values[in]) != tier_of(&g->values[out])) continue;
                bool twice = false; /* the same bytes may not be read by another operand of this node */
                for (int j = 0; j < n->n_in; j++)
                    twice |= j != i && n->in[j].value != SN_NONE && p->root[n->in[j].value] == r && !(op->alias[o] >> j & 1);
                if (twice) continue;
                taken |= 1u << i;
                p->root[out] = r;
                p->last[r] = p->last[out];
                p->held[r] = hull(p->held[r], p->held[out]);
                break;
            }
        }
    }
}

static sn_queue queue_of(const sn_node *n) {
    if (n->op == SN_OP_copy) return SN_QUEUE_COPY;
    if (n->op == SN_OP_read || n->op == SN_OP_fetch || n->op == SN_OP_store) return SN_QUEUE_IO;
    if (sn_ops[n->op]->comm_axis) return SN_QUEUE_COMM;
    return SN_QUEUE_COMPUTE;
}

static sn_arg arg_of(const planner *p, const sn_use *u, bool here, bool writes) {
    sn_vid v = u->value;
    if (!here) return (sn_arg){.arena = SN_NO_ARENA, .value = SN_NONE};
    const sn_value *x = &p->g->values[v];
    sn_vid r = p->root[v];
    uint64_t begin;
    sn_shape shape = use_of(p, u, &begin);
    return (sn_arg){.arena = (uint8_t)tier_of(&p->g->values[r]), .offset = p->offset[r] + begin, .writes = writes, .class_of = (uint8_t)x->class_of,
                    .dtype = x->dtype, .shape = shape, .value = v, .slotted = x->input, .turns = p->turns[v]};
}

static sn_status find_kernel(const planner *p, const sn_node *n, const sn_call *c, const sn_kernel **kernel) {
    const sn_op *op = sn_ops[n->op];
    *kernel = sn_kernel_find(op, p->request->device.kind, p->request->device.features, c);
    if (*kernel) return SN_OK;
    sn_str forms = {0};
    char text[96];
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const sn_tensor *t = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        if (t->shape.rank) sn_str_printf(&forms, "%s%s %s", i == c->n_in ? " -> " : i ? ", " : "", sn_dtype_name(t->dtype), sn_shape_text(&t->shape, text));
    }
    sn_status s = sn_fail(SN_ERR_PLAN, "%s: no %s kernel of %s takes %s (node %s)", p->g->name, p->request->device.name, op->name,
                          forms.data ? forms.data : "this", n->name);
    sn_str_free(&forms);
    return s;
}

/* The logical index of the first element where operand 0 is in shards; of columns, as if those of one rank came after another's. */
static int64_t first_of(const planner *p, const sn_node *n) {
    const sn_value *v = &p->g->values[n->in[0].value];
    int64_t first, in_view = 0, begin[SN_MAX_DIMS];
    sn_local_shape(&v->shape, split_of(v), &p->job->mesh, p->request->rank, &first);
    sn_shape block = sn_local_block(&v->shape, split_of(v), &p->job->mesh, p->request->rank, begin);
    for (int d = 0; d < block.rank; d++) {
        int64_t at = begin[d];
        for (int k = 0; k < block.rank; k++) at *= k == d ? 1 : block.d[k];
        first += at;
    }
    if (is_view(v, &n->in[0])) view_of(p, &n->in[0], &in_view);
    return first + in_view;
}

/* A split as it is on the axes on which the program's inputs are spread, whole on others. */
static sn_split of_inputs(const sn_graph *g, const sn_split *s) {
    sn_split outer = {0};
    for (size_t v = 0; v < g->n_values; v++)
        for (int a = 0; g->values[v].input && a < SN_MESH_AXES; a++)
            if (g->values[v].result.axis[a].kind == SN_SHARD) outer.axis[a] = s->axis[a];
    return outer;
}

/* Attributes that say where a rank's part of an operand begins. */
static void set_begins(const planner *p, const sn_node *n, sn_attrs *attrs) {
    for (int k = 0; k < 2; k++) {
        const struct sn_begins *b = &sn_ops[n->op]->begins[k];
        if (!b->attr) continue;
        bool output = b->operand == SN_MAX_IN;
        sn_vid v = !output ? n->in[b->operand].value : n->n_out && n->out[0] != SN_NONE ? n->out[0] : n->in[n->n_in - 1].value;
        const sn_value *x = &p->g->values[v];
        const sn_use *u = output ? NULL : &n->in[b->operand];
        sn_split split = u && u->has_split ? u->split : *split_of(x);
        int64_t begin[SN_MAX_DIMS], given[SN_MAX_DIMS] = {0};
        sn_local_block(&x->shape, &split, &p->job->mesh, p->request->rank, begin);
        split = of_inputs(p->g, &split);
        if (b->in_input) sn_local_block(&x->shape, &split, &p->job->mesh, p->request->rank, given);
        attrs->i[b->attr - 1] += begin[b->dim] - given[b->dim];
    }
}

static sn_status make_instructions(planner *p) {
    const sn_graph *g = p->g;
    sn_program *prog = &p->out->program;
    prog->count = (uint32_t)p->n_order;
    prog->instrs = sn_alloc_zero(p->n_order, sizeof *prog->instrs);
    if (!prog->instrs) return no_memory();
    for (size_t k = 0; k < p->n_order; k++) prog->n_args += (uint32_t)g->nodes[p->order[k]].n_in + (uint32_t)g->nodes[p->order[k]].n_out;
    prog->args = sn_alloc_zero(prog->n_args, sizeof *prog->args);
    if (!prog->args) return no_memory();
    sn_arg *next = prog->args;
    for (size_t k = 0; k < p->n_order; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        const sn_op *op = sn_ops[n->op];
        sn_instr *in = &prog->instrs[k];
        sn_call c;
        SN_TRY(check_made(p, n));
        SN_TRY(check_slices(p, n));
        SN_TRY(check_splits(p, n));
        local_call(p, n, &c);
        SN_TRY(find_kernel(p, n, &c, &in->kernel));
        in->op = op->name;
        in->n_in = n->n_in;
        in->n_out = n->n_out;
        in->in = next;
        in->out = next += n->n_in;
        next += n->n_out;
        in->attrs = n->attrs;
        if (op->flat_first) in->attrs.i[op->flat_first - 1] += first_of(p, n);
        set_begins(p, n, &in->attrs);
        in->node = p->order[k];
        in->turns = p->node_turns[p->order[k]];
        in->name = n->name;
        in->made_by = n->made_by;
        in->queue = (uint8_t)queue_of(n);
        if (op->comm_axis) in->axis = (uint8_t)n->attrs.i[op->comm_axis - 1];
        in->pair = op->comm_from;
        in->from = op->comm_from ? (int16_t)n->attrs.i[op->comm_from - 1] : 0;
        in->to = op->comm_from ? (int16_t)n->attrs.i[op->comm_from] : 0;
        in->scratch_bytes = in->kernel->scratch ? sn_round_up(in->kernel->scratch(&c, p->request->device.threads), SN_ALIGN) : 0;
        double moved = 0;
        for (int i = 0; i < c.n_in + c.n_out; i++) {
            const sn_tensor *t = i < c.n_in ? &c.in[i] : &c.out[i - c.n_in];
            if (t->shape.rank) moved += (double)sn_tensor_bytes(t);
        }
        sn_cost cost = op->cost ? op->cost(&c) : (sn_cost){0, moved};
        in->flops = cost.flops;
        in->bytes = cost.bytes;
    }
    return SN_OK;
}

static uint64_t block_bytes(const planner *p, sn_vid root) {
    return p->staged[root] ? sn_round_up(p->bytes[root], SN_DISK_ALIGN) : p->bytes[root];
}

static bool has_block(const planner *p, sn_vid v, sn_tier tier) {
    return p->root[v] == v && is_transient(p, &p->g->values[v]) && p->first[v] != SN_NONE && tier_of(&p->g->values[v]) == tier && p->bytes[v];
}

/* Transient bytes of a tier from which on the plan is of no use. */
static uint64_t most_of(const planner *p, sn_tier tier) {
    uint64_t persistent = p->plan->persistent_bytes[tier];
    if (!p->request->most || tier != SN_TIER_DEVICE) return UINT64_MAX;
    return p->request->most > persistent ? p->request->most - persistent : 0;
}

/* Blocks of one arena: values (by root) and scratch. */
static sn_status place_transients(planner *p) {
    const sn_graph *g = p->g;
    sn_program *prog = &p->out->program;
    size_t most = g->n_values + p->n_order + 1;
    sn_block *blocks = sn_alloc(most * sizeof *blocks);
    sn_life *lives = p->out->lives = sn_alloc_zero(most, sizeof *lives);
    sn_status s = blocks && lives ? SN_OK : no_memory();
    size_t n_lives = 0;
    for (int tier = 0; s == SN_OK && tier < SN_TIER_COUNT; tier++) {
        size_t n = 0, base = n_lives;
        for (size_t v = 0; v < g->n_values; v++) {
            if (!has_block(p, (sn_vid)v, (sn_tier)tier)) continue;
            uint64_t bytes = block_bytes(p, (sn_vid)v);
            uint32_t align = p->staged[v] ? SN_DISK_ALIGN : 0;
            blocks[n++] = (sn_block){.first = p->first[v], .last = p->last[v], .bytes = bytes, .align = align, .turns = p->held[v]};
            lives[n_lives] = (sn_life){p->first[v], p->last[v], (uint32_t)v, 0, bytes, g->values[v].class_of, (sn_tier)tier, p->held[v]};
            n_lives++;
        }
        for (uint32_t k = 0; tier == SN_TIER_DEVICE && k < prog->count; k++) {
            if (!prog->instrs[k].scratch_bytes) continue;
            blocks[n++] = (sn_block){.first = k, .last = k, .bytes = prog->instrs[k].scratch_bytes, .turns = prog->instrs[k].turns};
            lives[n_lives++] = (sn_life){k, k, SN_NONE, 0, prog->instrs[k].scratch_bytes, SN_CLASS_WORKSPACE, SN_TIER_DEVICE, prog->instrs[k].turns};
        }
        uint64_t arena = 0;
        if (p->request->reuse) s = sn_place(blocks, n, most_of(p, (sn_tier)tier), &arena, &p->plan->rough);
        else
            for (size_t i = 0; i < n; i++) {
                blocks[i].offset = blocks[i].align ? sn_round_up(arena, blocks[i].align) : arena;
                arena = blocks[i].offset + blocks[i].bytes;
            }
        prog->transient_bytes[tier] = arena;
        uint64_t origin = p->plan->persistent_bytes[tier];
        for (size_t i = 0; s == SN_OK && i < n; i++) {
            sn_life *l = &lives[base + i];
            l->offset = origin + blocks[i].offset;
            if (l->value != SN_NONE) p->offset[l->value] = l->offset;
            else prog->instrs[l->first].scratch_offset = l->offset;
        }
    }
    p->out->n_lives = n_lives;
    sn_free(blocks);
    return s;
}

/* What an instruction moves in the disk arena: whole blocks, where it moves a value to its end and its place in memory is as long. */
static void measure_transfer(const planner *p, const sn_node *n, sn_instr *in) {
    if (n->op != SN_OP_fetch && n->op != SN_OP_store) return;
    in->disk_writes = n->op == SN_OP_store;
    const sn_use *away = &n->in[in->disk_writes], *here = in->disk_writes ? &n->in[0] : NULL;
    const sn_arg *at = &in->in[in->disk_writes], *memory = here ? &in->in[0] : &in->out[0];
    const sn_value *v = &p->g->values[away->value];
    size_t bytes;
    if (!sn_shape_bytes(&at->shape, at->dtype, &bytes)) return;
    bool whole_here = p->staged[p->root[memory->value]] && !(here && (here->slice_n || is_view(&p->g->values[here->value], here)));
    bool to_end = !is_view(v, away) && (!away->slice_n || away->slice_at + away->slice_n == v->shape.d[0]);
    bool blocks = whole_here && to_end && !(at->offset % SN_DISK_ALIGN) && is_transient(p, &p->g->values[memory->value]);
    in->disk_bytes = blocks ? sn_round_up(bytes, SN_DISK_ALIGN) : bytes;
}

static void place_arguments(planner *p) {
    const sn_graph *g = p->g;
    sn_program *prog = &p->out->program;
    for (uint32_t k = 0; k < prog->count; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        sn_instr *in = &prog->instrs[k];
        for (int i = 0; i < n->n_in; i++) in->in[i] = arg_of(p, &n->in[i], is_read(p, n, i), sn_ops[n->op]->mutates >> i & 1);
        for (int i = 0; i < n->n_out; i++) {
            sn_use whole = sn_use_of(n->out[i]);
            in->out[i] = arg_of(p, &whole, is_held(p, n->out[i]), true);
        }
        measure_transfer(p, n, in);
    }
}

/* Lifetimes and instructions in the order of p->order; no places yet. */
static sn_status lay_out(planner *p) {
    const sn_graph *g = p->g;
    memset(p->staged, 0, (g->n_values + 1) * sizeof *p->staged);
    memcpy(p->held, p->turns, (g->n_values + 1) * sizeof *p->held);
    SN_TRY(measure_values(p));
    measure_lifetimes(p);
    SN_TRY(hold_inputs(p));
    if (p->request->reuse) join_aliases(p);
    mark_staged(p);
    return make_instructions(p);
}

/* Bytes alive at each instruction of a tier. */
static void measure_live(const planner *p, sn_tier tier, uint64_t *live) {
    const sn_program *prog = &p->out->program;
    memset(live, 0, (prog->count + 1) * sizeof *live);
    for (size_t v = 0; v < p->g->n_values; v++) {
        if (!has_block(p, (sn_vid)v, tier)) continue;
        live[p->first[v]] += block_bytes(p, (sn_vid)v);
        live[p->last[v] + 1] -= block_bytes(p, (sn_vid)v);
    }
    for (uint32_t k = 1; k < prog->count; k++) live[k] += live[k - 1];
    for (uint32_t k = 0; tier == SN_TIER_DEVICE && k < prog->count; k++) live[k] += prog->instrs[k].scratch_bytes;
}

static void free_program(sn_planned *p) {
    sn_free(p->program.instrs);
    sn_free(p->program.args);
    sn_free(p->lives);
    p->program.instrs = NULL;
    p->program.args = NULL;
    p->lives = NULL;
    p->program.count = p->program.n_args = 0;
}

/* Brings values ahead, within the bytes of the transient part that are there anyway. */
static sn_status bring_ahead(planner *p, const sn_ahead *within) {
    sn_ahead a = *within;
    bool moved;
    uint64_t *live = sn_alloc(SN_TIER_COUNT * (p->n_order + 1) * sizeof *live);
    if (!live) return no_memory();
    a.g = p->g;
    a.bytes = p->bytes;
    for (int t = 0; t < SN_TIER_COUNT; t++) {
        measure_live(p, (sn_tier)t, live + (size_t)t * (p->n_order + 1));
        a.live[t] = live + (size_t)t * (p->n_order + 1);
    }
    sn_status s = sn_plan_ahead(&a, p->order, p->n_order, &moved);
    sn_free(live);
    if (s != SN_OK || !moved) return s;
    free_program(p->out);
    return lay_out(p);
}

/* ahead: NULL: values are brought where the graph says so. */
static sn_status plan_program(sn_plan *plan, const sn_job *job, int index, const sn_plan_request *request, const sn_ahead *ahead) {
    const sn_graph *g = job->graphs[index];
    size_t n = g->n_values + 1;
    planner p = {.job = job, .g = g, .request = request, .plan = plan, .out = &plan->programs[index]};
    uint32_t *words = sn_alloc(3 * n * sizeof *words);
    uint64_t *longs = sn_alloc_zero(2 * n, sizeof *longs);
    p.shape = sn_alloc(n * sizeof *p.shape);
    p.staged = sn_alloc_zero(n, sizeof *p.staged);
    p.here = sn_alloc_zero(n, sizeof *p.here);
    p.order = sn_alloc((g->n_order + 1) * sizeof *p.order);
    sn_turn_span *spans = sn_alloc_zero(2 * n + g->n_nodes, sizeof *spans);
    sn_status s = words && longs && p.shape && p.staged && p.here && p.order && spans ? SN_OK : no_memory();
    if (s == SN_OK) {
        p.first = words;
        p.last = words + n;
        p.root = words + 2 * n;
        p.bytes = longs;
        p.offset = longs + n;
        p.turns = spans;
        p.held = spans + n;
        p.node_turns = spans + 2 * n;
        p.out->program.name = g->name;
        p.out->program.turns = job->turns.count;
        p.out->role = g->role;
        p.out->micro_batches = g->micro_batches;
        s = choose_nodes(&p);
    }
    if (s == SN_OK) s = sn_plan_turns(g, p.node_turns, p.turns);
    if (s == SN_OK) s = lay_out(&p);
    if (s == SN_OK && ahead) s = bring_ahead(&p, ahead);
    for (size_t v = 0; s == SN_OK && v < g->n_values; v++) {
        const sn_value *x = &g->values[v];
        if (x->persistent != SN_NONE && !is_transient(&p, x)) p.offset[v] = plan->persistent[x->persistent].offset;
        for (int i = 0; (x->input || x->output) && i < p.out->n_io; i++)
            if (!strcmp(p.out->io[i].name, x->name)) p.offset[v] = p.out->io[i].offset;
    }
    if (s == SN_OK) s = place_transients(&p);
    if (s == SN_OK) {
        place_arguments(&p);
        if (!plan->rough) sn_plan_queues(&p.out->program);
    }
    sn_free(words);
    sn_free(longs);
    sn_free(p.shape);
    sn_free(p.staged);
    sn_free(p.here);
    sn_free(p.order);
    sn_free(spans);
    return s;
}

static bool has_fetches(const sn_program *p) {
    for (uint32_t k = 0; k < p->count; k++)
        if (p->instrs[k].disk_bytes && !p->instrs[k].disk_writes) return true;
    return false;
}

/* Plans programs again with values brought ahead, where the arenas do not grow by it. */
static sn_status plan_ahead(sn_plan *plan, const sn_job *job, const sn_plan_request *request) {
    sn_ahead ahead = {0};
    for (int k = 0; k < plan->n_programs; k++)
        for (int t = 0; t < SN_TIER_COUNT; t++)
            if (plan->programs[k].program.transient_bytes[t] > ahead.most[t]) ahead.most[t] = plan->programs[k].program.transient_bytes[t];
    for (int k = 0; k < plan->n_programs; k++) {
        sn_program *p = &plan->programs[k].program;
        bool fits = !has_fetches(p);
        for (uint64_t window = WINDOW; !fits; window = window > WINDOW / 8 ? window / 4 : 0) {
            ahead.window = window;
            plan->rough = false;
            free_program(&plan->programs[k]);
            SN_TRY(plan_program(plan, job, k, request, window ? &ahead : NULL));
            fits = !window;
            for (int t = 0; !fits && t < SN_TIER_COUNT; t++)
                if (p->transient_bytes[t] > ahead.most[t]) break;
                else fits = t == SN_TIER_COUNT - 1;
        }
    }
    return SN_OK;
}

/* The host arena opens with the inputs of all programs, once for each slot, then the outputs. */
static sn_status place_io(sn_plan *plan, const sn_job *job) {
    uint64_t at = 0;
    plan->input_slots = 2;
    for (int inputs = 1; inputs >= 0; inputs--) {
        for (int k = 0; k < job->n_graphs; k++) {
            const sn_graph *g = job->graphs[k];
            sn_planned *out = &plan->programs[k];
            if (!out->io) {
                size_t n = 0;
                for (size_t v = 0; v < g->n_values; v++) n += g->values[v].input || g->values[v].output;
                out->io = sn_alloc_zero(n, sizeof *out->io);
                if (!out->io) return no_memory();
            }
            for (size_t v = 0; v < g->n_values; v++) {
                const sn_value *x = &g->values[v];
                if (inputs ? !x->input : !x->output) continue;
                sn_shape local = sn_local_shape(&x->shape, &x->result, &job->mesh, plan->rank, NULL);
                size_t bytes;
                if (!sn_shape_bytes(&local, x->dtype, &bytes)) return sn_fail(SN_ERR_SHAPE, "%s: %s has no valid size", g->name, x->name);
                out->io[out->n_io++] = (sn_io_slot){.name = x->name, .offset = at, .bytes = bytes, .shape = local, .dtype = x->dtype, .input = inputs};
                at += sn_round_up(bytes, SN_ALIGN);
            }
        }
        if (inputs) {
            plan->input_stride = at;
            at *= (uint64_t)plan->input_slots;
        }
    }
    plan->persistent_bytes[SN_TIER_HOST] = at;
    return SN_OK;
}

/* One program alone touches it, and writes it before it reads. */
static bool lives_within(const sn_job *job, sn_pid p) {
    int programs = 0;
    bool written = false;
    for (int k = 0; k < job->n_graphs; k++) {
        const sn_graph *g = job->graphs[k];
        if (p >= g->n_of_persistent || g->of_persistent[p] == SN_NONE) continue;
        written = g->values[g->of_persistent[p]].producer != SN_NONE;
        programs++;
    }
    return programs == 1 && written;
}

/* Places the values of one turn (-1: those that are always there) from at[] on, and moves at[] behind them. */
static sn_status place_turn(sn_plan *plan, const sn_job *job, int32_t turn, uint64_t at[SN_TIER_COUNT]) {
    for (size_t i = 0; i < job->n_persistent; i++) {
        const sn_persistent *e = &job->persistent[i];
        sn_placed *x = &plan->persistent[i];
        size_t bytes;
        if (x->within || x->turn != turn) continue;
        if (!sn_shape_bytes(&x->shape, e->rest.form, &bytes)) return sn_fail(SN_ERR_SHAPE, "%s in form %s has no valid size", e->name, sn_dtype_name(e->rest.form));
        x->bytes = bytes;
        x->offset = at[x->tier];
        at[x->tier] += sn_round_up(bytes, x->tier == SN_TIER_DISK ? SN_DISK_ALIGN : SN_ALIGN);
    }
    return SN_OK;
}

static sn_status place_persistent(sn_plan *plan, const sn_job *job) {
    plan->n_persistent = job->n_persistent;
    plan->persistent = sn_alloc_zero(job->n_persistent, sizeof *plan->persistent);
    if (!plan->persistent) return no_memory();
    for (size_t i = 0; i < job->n_persistent; i++) {
        const sn_persistent *e = &job->persistent[i];
        sn_placed *x = &plan->persistent[i];
        for (int a = 0; a < SN_MESH_AXES; a++)
            if (e->rest.split.axis[a].kind == SN_SHARD && e->rest.split.axis[a].at == SN_DEAL_THIRDS && !sn_is_flat(&e->rest.split.axis[a]))
                x->thirds = e->rest.split.axis[a].dim + 1;
        x->block = sn_local_block(&e->shape, &e->rest.split, &job->mesh, plan->rank, x->begin);
        x->shape = sn_local_shape(&e->shape, &e->rest.split, &job->mesh, plan->rank, &x->first);
        x->tier = e->rest.tier;
        x->turn = sn_job_turn(job, (sn_pid)i);
        sn_shape_elements(&x->shape, &x->count);
        x->within = lives_within(job, (sn_pid)i);
    }
    uint64_t at[SN_TIER_COUNT], ends[SN_TIER_COUNT];
    memcpy(at, plan->persistent_bytes, sizeof at);
    SN_TRY(place_turn(plan, job, -1, at));
    memcpy(ends, at, sizeof ends);
    for (int turn = 0; turn < job->turns.count; turn++) { /* one lot at a time lies behind what is always there */
        uint64_t end[SN_TIER_COUNT];
        memcpy(end, at, sizeof end);
        SN_TRY(place_turn(plan, job, turn, end));
        for (int t = 0; t < SN_TIER_COUNT; t++)
            if (end[t] > ends[t]) ends[t] = end[t];
    }
    memcpy(plan->persistent_bytes, ends, sizeof ends);
    for (int t = 0; plan->persistent_bytes[SN_TIER_DISK] && t < SN_TIER_DISK; t++) /* staged tiles are aligned in the part behind */
        plan->persistent_bytes[t] = sn_round_up(plan->persistent_bytes[t], SN_DISK_ALIGN);
    return SN_OK;
}

int64_t sn_placed_run(const sn_placed *at, const sn_shape *logical, int64_t element, int64_t *where) {
    int64_t run = 1, row = 1, in_block = at->first + element;
    int last = 0; /* the innermost dimension that is in shards: behind it all is there */
    for (int d = 0; d < logical->rank; d++)
        if (at->block.d[d] != logical->d[d]) last = d;
    for (int d = last; d < logical->rank; d++) run *= at->block.d[d];
    for (int d = last + 1; d < logical->rank; d++) row *= logical->d[d];
    if (!run) return 0;
    int64_t outer = in_block / run, in_run = in_block % run, left = at->count - element;
    int64_t piece = at->thirds == last + 1 ? run / 3 : run, third = in_run / piece;
    in_run %= piece;
    *where = in_run + (at->begin[last] + third * (at->thirds ? logical->d[last] / 3 : 0)) * row;
    row *= logical->rank ? logical->d[last] : 1;
    for (int d = last - 1; d >= 0; d--) {
        *where += (outer % at->block.d[d] + at->begin[d]) * row;
        outer /= at->block.d[d];
        row *= logical->d[d];
    }
    return piece - in_run < left ? piece - in_run : left;
}

sn_status sn_plan_make(const sn_job *job, const sn_plan_request *request, sn_plan **out) {
    sn_plan *plan = *out = sn_alloc_zero(1, sizeof *plan);
    if (!plan) return no_memory();
    plan->device = request->device;
    plan->rank = request->rank;
    plan->mesh = job->mesh;
    plan->n_programs = job->n_graphs;
    plan->files = job->files;
    plan->n_files = (int)job->n_files;
    plan->disk_folder = job->disk_folder;
    sn_status s = place_io(plan, job);
    if (s == SN_OK) s = place_persistent(plan, job);
    for (int k = 0; s == SN_OK && k < job->n_graphs; k++) s = plan_program(plan, job, k, request, NULL);
    if (s == SN_OK && request->reuse && !plan->rough) s = plan_ahead(plan, job, request);
    if (s == SN_OK) s = sn_plan_fill_bill(plan, job, request);
    if (s != SN_OK) {
        sn_plan_free(plan);
        *out = NULL;
    }
    return s;
}

void sn_plan_free(sn_plan *plan) {
    if (!plan) return;
    for (int k = 0; k < plan->n_programs; k++) {
        free_program(&plan->programs[k]);
        sn_free(plan->programs[k].io);
    }
    sn_free(plan->persistent);
    sn_pool_free(&plan->pool);
    sn_free(plan);
}
