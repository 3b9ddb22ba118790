#include "plan/planner.h"

#include <string.h>

#include "base/str.h"
#include "plan/ahead.h"
#include "plan/place.h"

enum { WINDOW = 64 << 20 }; /* bytes that are brought ahead of their use, where there is room */

/* Where each rank has the runs of its own elements, their number follows from what it has of those. */
static sn_shape shape_of(const planner *p, const sn_value *v) {
    int64_t begin[SN_MAX_DIMS], n;
    sn_shape s = v->shape;
    if (v->run) {
        const sn_value *of = &p->g->values[v->runs_of];
        s = sn_local_block(&of->shape, sn_plan_split_of(of), &p->job->mesh, p->request->rank, begin);
        sn_shape_elements(&s, &n);
        s = sn_shape_of((n + v->run - 1) / v->run);
    }
    return sn_local_shape(&s, sn_plan_split_of(v), &p->job->mesh, p->request->rank, NULL);
}

static sn_status measure_values(planner *p) {
    for (size_t v = 0; v < p->g->n_values; v++) {
        const sn_value *x = &p->g->values[v];
        size_t bytes;
        p->shape[v] = shape_of(p, x);
        if (!sn_shape_bytes(&p->shape[v], x->dtype, &bytes)) {
            char text[96];
            return sn_fail(SN_ERR_SHAPE, "%s: value %s %s of form %s has no valid size", p->g->name, x->name ? x->name : "?",
                           sn_shape_text(&x->shape, text), sn_dtype_name(x->dtype));
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

/* The nodes of the graph that this rank runs, and what it has. */
static sn_status choose_nodes(planner *p) {
    const sn_graph *g = p->g;
    uint8_t *used = sn_alloc_zero(g->n_values + 1, sizeof *used);
    size_t at = g->n_order;
    if (!used) return sn_plan_no_memory();
    for (size_t v = 0; v < g->n_values; v++)
        for (int a = 0; g->values[v].input && a < SN_MESH_AXES; a++)
            if (g->values[v].result.axis[a].kind == SN_SHARD) p->dealt |= 1u << a;
    for (size_t v = 0; v < g->n_values; v++) p->here[v] = sn_split_holds(sn_plan_split_of(&g->values[v]), &p->job->mesh, p->request->rank);
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
            if (sn_plan_is_read(p, n, i)) p->last[n->in[i].value] = (uint32_t)k;
        for (int i = 0; i < n->n_out; i++)
            if (sn_plan_is_held(p, n->out[i])) {
                if (p->first[n->out[i]] == SN_NONE) p->first[n->out[i]] = (uint32_t)k;
                if (p->last[n->out[i]] < k) p->last[n->out[i]] = (uint32_t)k;
            }
    }
}

/* What a node sends on a queue of its own stays until the node that holds it is done. */
static sn_status hold_inputs(planner *p) {
    const sn_graph *g = p->g;
    uint32_t *at = sn_alloc_zero(g->n_nodes + 1, sizeof *at);
    if (!at) return sn_plan_no_memory();
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
    for (size_t v = 0; v < g->n_values; v++) p->staged[v] |= sn_plan_tier_of(&g->values[v]) == SN_TIER_DISK;
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
            if (out == SN_NONE || !op->alias[o] || !sn_plan_is_transient(p, &g->values[out])) continue;
            for (int i = 0; i < n->n_in; i++) {
                sn_vid in = n->in[i].value;
                if (in == SN_NONE || n->in[i].slice_n || sn_plan_is_view(&g->values[in], &n->in[i]) || !(op->alias[o] >> i & 1) ||
                    taken >> i & 1 || !sn_plan_is_transient(p, &g->values[in]))
                    continue;
                sn_vid r = p->root[in];
                if (p->last[r] != k || p->last[in] != k || p->bytes[in] != p->bytes[out] ||
                    sn_plan_tier_of(&g->values[in]) != sn_plan_tier_of(&g->values[out]))
                    continue;
                bool twice = false; /* the same bytes may not be read by another operand of this node */
                for (int j = 0; j < n->n_in; j++)
                    twice |= j != i && n->in[j].value != SN_NONE && p->root[n->in[j].value] == r && !(op->alias[o] >> j & 1);
                if (twice) continue;
                taken |= 1u << i;
                p->root[out] = r;
                p->last[r] = p->last[out];
                p->held[r] = sn_turn_hull(p->held[r], p->held[out]);
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
    sn_shape shape = sn_plan_use_of(p, u, &begin);
    return (sn_arg){.arena = (uint8_t)sn_plan_tier_of(&p->g->values[r]),
                    .offset = p->offset[r] + begin,
                    .writes = writes,
                    .class_of = (uint8_t)x->class_of,
                    .dtype = x->dtype,
                    .shape = shape,
                    .value = v,
                    .slotted = x->input,
                    .turns = p->turns[v]};
}

static sn_status find_kernel(const planner *p, const sn_node *n, const sn_call *c, const sn_kernel **kernel) {
    const sn_op *op = sn_ops[n->op];
    *kernel = sn_kernel_find(op, p->request->device.kind, p->request->device.features, c);
    if (*kernel) return SN_OK;
    sn_str forms = {0};
    char text[96];
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const sn_tensor *t = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        if (t->shape.rank)
            sn_str_printf(&forms, "%s%s %s",
                          i == c->n_in ? " -> "
                          : i          ? ", "
                                       : "",
                          sn_dtype_name(t->dtype), sn_shape_text(&t->shape, text));
    }
    sn_status s = sn_fail(SN_ERR_PLAN, "%s: no %s kernel of %s takes %s (node %s)", p->g->name, p->request->device.name, op->name,
                          forms.data ? forms.data : "this", n->name);
    sn_str_free(&forms);
    return s;
}

static sn_status make_instructions(planner *p) {
    const sn_graph *g = p->g;
    sn_program *prog = &p->out->program;
    prog->count = (uint32_t)p->n_order;
    prog->instrs = sn_alloc_zero(p->n_order, sizeof *prog->instrs);
    if (!prog->instrs) return sn_plan_no_memory();
    for (size_t k = 0; k < p->n_order; k++) prog->n_args += (uint32_t)g->nodes[p->order[k]].n_in + (uint32_t)g->nodes[p->order[k]].n_out;
    prog->args = sn_alloc_zero(prog->n_args, sizeof *prog->args);
    if (!prog->args) return sn_plan_no_memory();
    sn_arg *next = prog->args;
    for (size_t k = 0; k < p->n_order; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        const sn_op *op = sn_ops[n->op];
        sn_instr *in = &prog->instrs[k];
        sn_call c;
        SN_TRY(sn_plan_check_uses(p, n));
        sn_plan_local_call(p, n, &c);
        SN_TRY(find_kernel(p, n, &c, &in->kernel));
        in->op = op->name;
        in->n_in = n->n_in;
        in->n_out = n->n_out;
        in->in = next;
        in->out = next += n->n_in;
        next += n->n_out;
        in->attrs = n->attrs;
        sn_plan_set_begins(p, n, &in->attrs);
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
        in->pairs = op->pairs;
        in->bytes = cost.bytes;
    }
    return SN_OK;
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
    bool whole_here = p->staged[p->root[memory->value]] && !(here && (here->slice_n || sn_plan_is_view(&p->g->values[here->value], here)));
    bool to_end = !sn_plan_is_view(v, away) && (!away->slice_n || away->slice_at + away->slice_n == v->shape.d[0]);
    bool blocks = whole_here && to_end && !(at->offset % SN_DISK_ALIGN) && sn_plan_is_transient(p, &p->g->values[memory->value]);
    in->disk_bytes = blocks ? sn_round_up(bytes, SN_DISK_ALIGN) : bytes;
}

static void place_arguments(planner *p) {
    const sn_graph *g = p->g;
    sn_program *prog = &p->out->program;
    for (uint32_t k = 0; k < prog->count; k++) {
        const sn_node *n = &g->nodes[p->order[k]];
        sn_instr *in = &prog->instrs[k];
        for (int i = 0; i < n->n_in; i++) in->in[i] = arg_of(p, &n->in[i], sn_plan_is_read(p, n, i), sn_ops[n->op]->mutates >> i & 1);
        for (int i = 0; i < n->n_out; i++) {
            sn_use whole = sn_use_of(n->out[i]);
            in->out[i] = arg_of(p, &whole, sn_plan_is_held(p, n->out[i]), true);
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
    if (!live) return sn_plan_no_memory();
    a.g = p->g;
    a.bytes = p->bytes;
    for (int t = 0; t < SN_TIER_COUNT; t++) {
        sn_plan_measure_live(p, (sn_tier)t, live + (size_t)t * (p->n_order + 1));
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
    sn_status s = words && longs && p.shape && p.staged && p.here && p.order && spans ? SN_OK : sn_plan_no_memory();
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
        if (x->persistent != SN_NONE && !sn_plan_is_transient(&p, x)) p.offset[v] = plan->persistent[x->persistent].offset;
        for (int i = 0; (x->input || x->output) && i < p.out->n_io; i++)
            if (!strcmp(p.out->io[i].name, x->name)) p.offset[v] = p.out->io[i].offset;
    }
    if (s == SN_OK) s = sn_plan_place_transients(&p);
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
            fits = true;
            for (int t = 0; window && t < SN_TIER_COUNT; t++) fits &= p->transient_bytes[t] <= ahead.most[t];
        }
    }
    return SN_OK;
}

sn_status sn_plan_make(const sn_job *job, const sn_plan_request *request, sn_plan **out) {
    sn_plan *plan = *out = sn_alloc_zero(1, sizeof *plan);
    if (!plan) return sn_plan_no_memory();
    plan->device = request->device;
    plan->rank = request->rank;
    plan->mesh = job->mesh;
    plan->n_programs = job->n_graphs;
    plan->files = job->files;
    plan->n_files = (int)job->n_files;
    plan->disk_folder = job->disk_folder;
    sn_status s = sn_plan_place_io(plan, job);
    if (s == SN_OK) s = sn_plan_place_persistent(plan, job);
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
