/* What a node is given at this rank: views, slices, what is sent or left out, where parts begin. */
#include "plan/planner.h"

bool sn_plan_is_view(const sn_value *v, const sn_use *u) {
    for (int a = 0; u->has_split && a < SN_MESH_AXES; a++)
        if (sn_is_run(&u->split.axis[a]) && sn_plan_split_of(v)->axis[a].kind == SN_WHOLE) return true;
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
        if (x->kind != SN_SHARD || sn_plan_split_of(v)->axis[a].kind != SN_WHOLE) continue;
        if (sn_is_flat(x)) {
            s = sn_shape_of(sn_share_of(row * s.d[0], x, mesh->size[a], index, &at));
            row = 1;
        } else {
            s.d[0] = sn_share_of(s.d[0], x, mesh->size[a], index, &at);
        }
        *first += at * row;
    }
    return s;
}

/* Views are runs of bytes, of what this rank has. */
static sn_status check_splits(const planner *p, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++)
        for (int a = 0; n->in[i].value != SN_NONE && n->in[i].has_split && a < SN_MESH_AXES; a++) {
            const sn_value *v = &p->g->values[n->in[i].value];
            const sn_split_axis *from = &sn_plan_split_of(v)->axis[a], *to = &n->in[i].split.axis[a];
            bool view = from->kind == SN_WHOLE && sn_is_run(to);
            if (p->job->mesh.size[a] <= 1 || from->kind == to->kind || view) continue;
            return sn_fail(SN_ERR_PLAN, "%s: %s %s takes %s as %s (dimension %d), which is %s (dimension %d) there", p->g->name,
                           sn_ops[n->op]->name, n->name, v->name ? v->name : "an input", sn_split_kind_name((sn_split_kind)to->kind),
                           to->dim, sn_split_kind_name((sn_split_kind)from->kind), from->dim);
        }
    return SN_OK;
}

/* Whether an operand counts on another rank and not on this one: it is added once to a sum of which each rank has a summand. */
static bool is_left_out(const planner *p, const sn_node *n, int i) {
    const sn_op *op = sn_ops[n->op];
    if (!(op->added_once >> i & 1) || n->in[i].value == SN_NONE) return false;
    sn_vid sum =
        n->n_out && n->out[0] != SN_NONE ? n->out[0] : n->in[op->mutates ? __builtin_ctz(op->mutates) : 0].value; /* given, or added to */
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (sn_plan_split_of(&p->g->values[sum])->axis[a].kind == SN_PARTIAL &&
            sn_plan_split_of(&p->g->values[n->in[i].value])->axis[a].kind == SN_WHOLE && sn_mesh_index(&p->job->mesh, p->request->rank, a))
            return true;
    return false;
}

sn_shape sn_plan_use_of(const planner *p, const sn_use *u, uint64_t *begin) {
    const sn_value *v = &p->g->values[u->value];
    sn_shape s = p->shape[u->value];
    const sn_dtype_info *form = &sn_dtypes[v->dtype];
    *begin = 0;
    if (sn_plan_is_view(v, u)) {
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
        bool missing = p->here[v] ? sn_plan_is_transient(p, &p->g->values[v]) && p->first[v] == SN_NONE : !sn_ops[n->op]->comm_axis;
        if (missing)
            return sn_fail(SN_ERR_PLAN, "%s: rank %d runs %s %s, but nothing makes %s there", p->g->name, p->request->rank,
                           sn_ops[n->op]->name, n->name, p->g->values[v].name ? p->g->values[v].name : "one of its inputs");
    }
    return SN_OK;
}

/* Rows are counted in logical coordinates, so a value whose first axis is spread over ranks has no slices yet. */
static sn_status check_slices(const planner *p, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++) {
        sn_vid v = n->in[i].value;
        if (v != SN_NONE && n->in[i].slice_n && p->shape[v].d[0] != p->g->values[v].shape.d[0])
            return sn_fail(SN_ERR_PLAN, "%s: %s %s: input %d is a slice of %s, whose rows are spread over ranks", p->g->name,
                           sn_ops[n->op]->name, n->name, i, p->g->values[v].name ? p->g->values[v].name : "a value");
    }
    return SN_OK;
}

bool sn_plan_is_read(const planner *p, const sn_node *n, int i) {
    const sn_op *op = sn_ops[n->op];
    bool sends = !op->comm_from ||
                 n->attrs.i[op->comm_from - 1] == sn_mesh_index(&p->job->mesh, p->request->rank, (int)n->attrs.i[op->comm_axis - 1]);
    return sends && sn_plan_is_held(p, n->in[i].value) && !is_left_out(p, n, i);
}

sn_status sn_plan_check_uses(const planner *p, const sn_node *n) {
    SN_TRY(check_made(p, n));
    SN_TRY(check_slices(p, n));
    return check_splits(p, n);
}

void sn_plan_local_call(const planner *p, const sn_node *n, sn_call *c) {
    uint64_t begin;
    sn_node_call(p->g, n, c);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value != SN_NONE) c->in[i].shape = sn_plan_is_read(p, n, i) ? sn_plan_use_of(p, &n->in[i], &begin) : (sn_shape){0};
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != SN_NONE) c->out[i].shape = sn_plan_is_held(p, n->out[i]) ? p->shape[n->out[i]] : (sn_shape){0};
}

/* The logical index of the first element where operand 0 is in shards; of columns, as if those of one rank came after another's. */
static int64_t first_of(const planner *p, const sn_node *n) {
    const sn_value *v = &p->g->values[n->in[0].value];
    int64_t first, in_view = 0, begin[SN_MAX_DIMS];
    sn_local_shape(&v->shape, sn_plan_split_of(v), &p->job->mesh, p->request->rank, &first);
    sn_shape block = sn_local_block(&v->shape, sn_plan_split_of(v), &p->job->mesh, p->request->rank, begin);
    for (int d = 0; d < block.rank; d++) {
        int64_t at = begin[d];
        for (int k = 0; k < block.rank; k++) at *= k == d ? 1 : block.d[k];
        first += at;
    }
    if (sn_plan_is_view(v, &n->in[0])) view_of(p, &n->in[0], &in_view);
    return first + in_view;
}

void sn_plan_set_begins(const planner *p, const sn_node *n, sn_attrs *attrs) {
    const sn_op *op = sn_ops[n->op];
    if (op->flat_first) attrs->i[op->flat_first - 1] += first_of(p, n);
    for (int k = 0; k < 2; k++) {
        const struct sn_begins *b = &op->begins[k];
        if (!b->attr) continue;
        bool output = b->operand == SN_MAX_IN;
        sn_vid v = !output ? n->in[b->operand].value : n->n_out && n->out[0] != SN_NONE ? n->out[0] : n->in[n->n_in - 1].value;
        const sn_value *x = &p->g->values[v];
        const sn_use *u = output ? NULL : &n->in[b->operand];
        sn_split split = u && u->has_split ? u->split : *sn_plan_split_of(x);
        int64_t begin[SN_MAX_DIMS], given[SN_MAX_DIMS] = {0};
        sn_local_block(&x->shape, &split, &p->job->mesh, p->request->rank, begin);
        for (int a = 0; a < SN_MESH_AXES; a++)
            if (!(p->dealt >> a & 1)) split.axis[a] = (sn_split_axis){.kind = SN_WHOLE};
        if (b->in_input) sn_local_block(&x->shape, &split, &p->job->mesh, p->request->rank, given);
        attrs->i[b->attr - 1] += begin[b->dim] - given[b->dim];
    }
}
