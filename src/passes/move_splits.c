/* Between splits, on each axis of the mesh: sums of partials, gathers of shards, views of what is whole, sends from rank to rank. A shard
 * of rows (of dimension 0) is a run of bytes as a flat shard is: the same collectives make it. */
#include "graph/op.h"
#include "ops/all_gather/all_gather.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/send_recv/send_recv.h"
#include "passes/move.h"

enum { COMM_UNIT = 64, SMALL_SUM = 64 << 10 /* bytes */ };

static const sn_split_axis comm_shard = {.kind = SN_SHARD, .dim = SN_SPLIT_FLAT, .unit = COMM_UNIT};

/* partial -> shard over an axis: every rank sums its shard in rank order. */
static sn_vid sum_over_ranks(const mover *m, sn_vid v, int axis, sn_split_axis shard) {
    sn_graph *g = m->g;
    sn_attrs a = {0};
    a.i[SN_REDUCE_SCATTER_AXIS] = axis;
    a.i[SN_REDUCE_SCATTER_UNIT] = sn_unit_of(&shard);
    a.i[SN_REDUCE_SCATTER_ROWS] = !sn_is_flat(&shard);
    a.i[SN_REDUCE_SCATTER_RANKS] = g->job->mesh.size[axis];
    a.i[SN_REDUCE_SCATTER_COPIES] = m->cluster->processes;
    g->values[v].class_of = SN_CLASS_COMMUNICATION;
    sn_vid out = sn_moved(g, SN_OP_reduce_scatter, &a, sn_use_of(v), SN_CLASS_COMMUNICATION);
    if (out != SN_NONE) g->values[out].result.axis[axis] = shard;
    return out;
}

static sn_attrs gather_attrs(int axis, const sn_split_axis *shard) {
    return (sn_attrs){
        .i = {[SN_ALL_GATHER_AXIS] = axis, [SN_ALL_GATHER_UNIT] = sn_unit_of(shard), [SN_ALL_GATHER_ROWS] = !sn_is_flat(shard)}};
}

/* shard -> whole over an axis. */
static sn_vid gather(sn_graph *g, sn_vid v, int axis) {
    const sn_attrs a = gather_attrs(axis, &g->values[v].result.axis[axis]);
    sn_vid whole = sn_moved(g, SN_OP_all_gather, &a, sn_use_of(v), SN_CLASS_COMMUNICATION);
    if (whole != SN_NONE) g->values[whole].result.axis[axis] = (sn_split_axis){.kind = SN_WHOLE};
    return whole;
}

/* The axis on which a use is a shard of what is whole there; -1: none. */
static int view_axis(const sn_graph *g, const sn_use *use) {
    for (int a = 0; use->value != SN_NONE && use->has_split && a < SN_MESH_AXES; a++)
        if (sn_is_run(&use->split.axis[a]) && g->values[use->value].result.axis[a].kind == SN_WHOLE && g->job->mesh.size[a] > 1) return a;
    return -1;
}

bool sn_is_view(const sn_graph *g, const sn_use *use) { return view_axis(g, use) >= 0; }

sn_status sn_gather_again(sn_graph *g, sn_nid id, int i) {
    sn_use shard = g->nodes[id].in[i], whole = sn_use_of(shard.value);
    int axis = view_axis(g, &shard);
    const sn_attrs a = gather_attrs(axis, &shard.split.axis[axis]);
    sn_vid out[SN_MAX_OUT];
    sn_insert_like(g, id, "move");
    sn_append_uses(g, SN_OP_all_gather, &a, 2, (sn_use[]){shard, whole}, g->values[shard.value].name, out);
    return g->status;
}

static bool has_way(const sn_split_axis *from, const sn_split_axis *to, bool mutated) {
    if (from->kind == SN_PARTIAL) return to->kind == SN_WHOLE || sn_is_run(to);
    if (from->kind == SN_WHOLE) return sn_is_run(to) || to->kind == SN_AT;
    if (from->kind == SN_AT) return to->kind == SN_AT && (sn_axis_within(to, from) || (to->at == to->also && !mutated));
    return sn_is_run(from) && to->kind == SN_WHOLE && !mutated;
}

sn_status sn_check_way(const sn_graph *g, const sn_node *n, int i) {
    const sn_value *v = &g->values[n->in[i].value];
    bool mutated = sn_ops[n->op]->mutates >> i & 1;
    if (!n->in[i].has_split) return SN_OK;
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *from = &v->result.axis[a], *to = &n->in[i].split.axis[a];
        bool own = v->run && from->kind == SN_PARTIAL; /* each rank has as many as it has elements: they do not add up */
        if (g->job->mesh.size[a] <= 1 || sn_axis_equal(from, to) || (!own && has_way(from, to, mutated))) continue;
        return sn_fail(SN_ERR_PLAN, "%s: no way from %s (dimension %d) to %s (dimension %d) for input %d of %s %s", g->name,
                       sn_split_kind_name((sn_split_kind)from->kind), from->dim, sn_split_kind_name((sn_split_kind)to->kind), to->dim, i,
                       sn_ops[n->op]->name, n->name);
    }
    return SN_OK;
}

static sn_status note_arrival(mover *m, sn_vid v, sn_vid there) {
    if (v >= m->n_arrived) {
        size_t n = m->g->n_values + m->g->n_values / 4;
        sn_vid *more = sn_realloc(m->arrived, n * sizeof *more);
        if (!more) return m->g->status = sn_fail(SN_ERR_NO_MEMORY, "cannot move the values of %s", m->g->name);
        for (size_t i = m->n_arrived; i < n; i++) more[i] = SN_NONE;
        m->arrived = more;
        m->n_arrived = n;
    }
    m->arrived[v] = there;
    return SN_OK;
}

/* at(i) -> at(j) over an axis. Once it has arrived, all later uses there take it. */
static sn_vid send_to(mover *m, sn_vid v, int axis, const sn_split_axis *to) {
    sn_graph *g = m->g;
    if (v < m->n_arrived && m->arrived[v] != SN_NONE && sn_axis_within(to, &g->values[m->arrived[v]].result.axis[axis]))
        return m->arrived[v];
    sn_split_axis from = g->values[v].result.axis[axis], own = g->where.axis[axis];
    sn_attrs a = {0};
    a.i[SN_SEND_RECV_AXIS] = axis;
    a.i[SN_SEND_RECV_FROM] = from.at;
    a.i[SN_SEND_RECV_TO] = to->at;
    g->where.axis[axis] = (sn_split_axis){.kind = SN_AT, .at = from.at, .also = to->at};
    sn_vid there = sn_moved(g, SN_OP_send_recv, &a, sn_use_of(v), SN_CLASS_ACTIVATIONS);
    g->where.axis[axis] = own;
    if (there == SN_NONE) return there;
    g->values[there].result.axis[axis] = *to;
    return note_arrival(m, v, there) == SN_OK ? there : SN_NONE;
}

static sn_status move_axis(mover *m, sn_nid id, sn_use *at, int axis, const sn_split_axis *to) {
    sn_graph *g = m->g;
    const sn_split_axis from = g->values[at->value].result.axis[axis], *here = &g->nodes[id].where.axis[axis];
    if (from.kind == SN_PARTIAL && to->kind != SN_PARTIAL) {
        at->value = sum_over_ranks(m, at->value, axis, sn_is_run(to) ? *to : comm_shard);
        if (at->value != SN_NONE && to->kind == SN_WHOLE) at->value = gather(g, at->value, axis);
    } else if (sn_is_run(&from) && to->kind == SN_WHOLE) {
        sn_vid found = sn_recall(m, at, g->values[at->value].dtype, &g->nodes[id], false);
        if (found == SN_NONE && (found = gather(g, at->value, axis)) != SN_NONE)
            sn_remember(m, at, found, g->values[found].dtype, &g->nodes[id], false);
        *at = sn_use_of(found);
    } else if (from.kind == SN_AT && to->kind == SN_AT && !sn_axis_within(to, &from) &&
               !(here->kind == SN_AT && sn_axis_within(here, &from))) {
        at->value = send_to(m, at->value, axis, to);
    }
    return g->status;
}

/* Sums that wait to be made whole: the last one is, first. */
static sn_status gather_sums(mover *m, sn_use *at, const int *axes, int *n) {
    while (*n > 0 && at->value != SN_NONE) at->value = gather(m->g, at->value, axes[--*n]);
    return m->g->status;
}

static bool is_small(const sn_value *v) {
    size_t bytes;
    return sn_shape_bytes(&v->shape, v->dtype, &bytes) && bytes <= SMALL_SUM;
}

/* What is on another rank is sent first, as small as it is: the rest is done where it is used. Then the innermost axis first: what is
 * summed inside a node is less for the axes around it. Of a sum over several axes that is to be whole, each sums the shards of the one
 * inside it, and all are gathered at the end. A small one is made whole axis by axis: others may be summed together with it. */
sn_status sn_move_split(mover *m, sn_nid id, sn_use *at, const sn_split *to) {
    const bool small = is_small(&m->g->values[at->value]);
    int summed[SN_MESH_AXES], n = 0;
    for (int i = 0; i < 2 * SN_MESH_AXES; i++) {
        const int a = SN_MESH_AXES - 1 - i % SN_MESH_AXES;
        const sn_split_axis from = m->g->values[at->value].result.axis[a];
        if ((from.kind == SN_AT) != (i < SN_MESH_AXES)) continue;
        if (m->g->job->mesh.size[a] <= 1 || sn_axis_equal(&from, &to->axis[a])) continue;
        if (!small && from.kind == SN_PARTIAL && to->axis[a].kind == SN_WHOLE) {
            at->value = sum_over_ranks(m, at->value, a, comm_shard);
            SN_TRY(m->g->status);
            summed[n++] = a;
            continue;
        }
        SN_TRY(gather_sums(m, at, summed, &n));
        SN_TRY(move_axis(m, id, at, a, &to->axis[a]));
    }
    return gather_sums(m, at, summed, &n);
}
