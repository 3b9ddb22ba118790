/* Small gradients are summed over the ranks together: one collective for several instead of two for each. What was summed when it was made
 * waits for others, at most until something looks at it. Each element is the same sum in rank order, so bits do not change. DeepSpeed:
 * reduce_bucket_size. */
#include "graph/op.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "passes/pass.h"

static const sn_option options[] = {{.key = "join_sums",
                                     .kind = SN_OPTION_BYTES,
                                     .default_text = "64KiB",
                                     .metavar = "SIZE",
                                     .help = "gradients of at most this size are summed over ranks several at once; 0: each for itself"}};

typedef struct joiner {
    sn_graph *g;
    const sn_nid *old; /* the order before */
    size_t n;
    int axis;       /* of the mesh: the last over which rows of the batch are summed */
    uint64_t most;  /* bytes of a gradient */
    uint32_t *uses; /* by value */
    sn_use in[2 * SN_ALL_REDUCE_MOST];
    int count; /* of `in` */
    int64_t adds;
    sn_nid last; /* the node that would have ended the last of them */
} joiner;

static bool is_gradient(const sn_graph *g, sn_vid v) {
    if (v == SN_NONE || g->values[v].persistent == SN_NONE) return false;
    const sn_persistent *e = &g->job->persistent[g->values[v].persistent];
    return e->class_of == SN_CLASS_GRADIENTS && e->rest.tier == SN_TIER_DEVICE;
}

/* A small sum from position k of the order on: reduce_scatter, all_gather, and what may take that. Returns how many nodes it is; 0: none.
 */
static size_t find_sum(const joiner *j, size_t k, sn_use *x, sn_vid *into, bool *adds) {
    const sn_graph *g = j->g;
    const sn_node *scatter = &g->nodes[j->old[k]];
    size_t bytes;
    if (scatter->op != SN_OP_reduce_scatter || scatter->phase != SN_PHASE_BACKWARD || scatter->attrs.i[SN_REDUCE_SCATTER_AXIS] != j->axis)
        return 0;
    if (scatter->attrs.i[SN_REDUCE_SCATTER_ROWS] || k + 1 >= j->n) return 0;
    const sn_value *v = &g->values[scatter->in[0].value];
    const sn_node *gather = &g->nodes[j->old[k + 1]], *taker = k + 2 < j->n ? &g->nodes[j->old[k + 2]] : NULL;
    if (v->persistent != SN_NONE || !sn_dtype_is_float(v->dtype) || v->dtype == SN_F64 || !sn_shape_bytes(&v->shape, v->dtype, &bytes) ||
        bytes > j->most)
        return 0;
    if (gather->op != SN_OP_all_gather || gather->n_in != 1 || gather->in[0].value != scatter->out[0] || j->uses[scatter->out[0]] != 1)
        return 0;
    *x = sn_use_of(scatter->in[0].value);
    *adds = false;
    *into = gather->out[0];
    if (is_gradient(g, *into)) return 2;
    if (!taker || g->values[*into].persistent != SN_NONE || j->uses[*into] != 1) return 0;
    *adds = taker->op == SN_OP_accumulate && taker->in[1].value == *into && !taker->in[0].slice_n;
    if (!*adds && ((taker->op != SN_OP_cast && taker->op != SN_OP_copy) || taker->n_in != 1 || taker->in[0].value != *into)) return 0;
    *into = *adds ? taker->in[0].value : taker->out[0];
    return is_gradient(g, *into) ? 3 : 0;
}

static int32_t turn_of(const sn_graph *g, sn_vid into) { return sn_job_turn(g->job, g->values[into].persistent); }

static sn_status flush(joiner *j) {
    sn_graph *g = j->g;
    const sn_attrs a = {
        .i = {[SN_ALL_REDUCE_AXIS] = j->axis, [SN_ALL_REDUCE_RANKS] = g->job->mesh.size[j->axis], [SN_ALL_REDUCE_ADDS] = j->adds}};
    sn_vid out[SN_MAX_OUT];
    if (!j->count) return SN_OK;
    sn_insert_like(g, j->last, "join_sums");
    sn_append_uses(g, SN_OP_all_reduce, &a, j->count, j->in, g->values[j->in[j->count - 1].value].name, out);
    j->count = 0;
    j->adds = 0;
    return g->status;
}

/* Whether a node may not come before the sums that wait. */
static bool needs_sums(const joiner *j, const sn_node *n) {
    if (n->phase == SN_PHASE_UPDATE) return true;
    for (int k = 0; k < j->count; k++)
        for (int i = 0; i < n->n_in + n->n_out; i++)
            if ((i < n->n_in ? n->in[i].value : n->out[i - n->n_in]) == j->in[k].value &&
                (k % 2 || i >= n->n_in || sn_ops[n->op]->mutates >> i & 1))
                return true;
    return false;
}

static sn_status join(joiner *j) {
    sn_graph *g = j->g;
    for (size_t k = 0, found; k < j->n; k += found ? found : 1) {
        sn_use x;
        sn_vid into;
        bool adds;
        found = find_sum(j, k, &x, &into, &adds);
        const size_t last = found ? k + found - 1 : k;
        for (size_t i = k; j->count && i <= last; i++)
            if (needs_sums(j, &g->nodes[j->old[i]])) SN_TRY(flush(j));
        if (!found) {
            SN_TRY(sn_push(g, j->old[k]));
            continue;
        }
        if (j->count == 2 * SN_ALL_REDUCE_MOST || (j->count && turn_of(g, j->in[1].value) != turn_of(g, into))) SN_TRY(flush(j));
        if (adds) j->adds |= 1ll << j->count / 2;
        else g->values[into].producer = SN_NONE; /* it is written where it rests */
        j->in[j->count++] = x;
        j->in[j->count++] = sn_use_of(into);
        j->last = j->old[last];
        for (size_t i = k; i <= last; i++) g->nodes[j->old[i]].dead = true;
        g->values[g->nodes[j->old[k]].out[0]].result.axis[j->axis] =
            (sn_split_axis){.kind = SN_WHOLE}; /* a shard that no rank has any more */
    }
    return flush(j);
}

static sn_status join_graph(sn_graph *g, uint64_t most) {
    joiner j = {.g = g, .old = g->order, .n = g->n_order, .most = most, .uses = sn_count_uses(g)};
    j.axis = g->job->mesh.size[SN_MESH_REPLICA] > 1 ? SN_MESH_REPLICA : SN_MESH_DP;
    sn_nid *old = g->order;
    if (!j.uses) return SN_ERR_NO_MEMORY;
    g->order = NULL;
    g->n_order = g->cap_order = 0;
    sn_status s = join(&j);
    sn_insert_at_end(g, "model");
    sn_free(old);
    sn_free(j.uses);
    return s;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    const uint64_t most = sn_options_bytes(recipe, "join_sums");
    /* Of a pipeline, what is summed together would have to belong to one stage. */
    for (int k = 0; most && sn_mesh_data_ranks(&cluster->mesh) > 1 && cluster->mesh.size[SN_MESH_PP] == 1 && k < job->n_graphs; k++)
        if (sn_role_trains(job->graphs[k]->role)) SN_TRY(join_graph(job->graphs[k], most));
    return SN_OK;
}

const sn_pass sn_pass_join_sums = {.name = "join_sums",
                                   .saves = "collectives: small gradients are summed over ranks several at once",
                                   .run = run,
                                   .options = SN_OPTION_GROUP("Sums", options)};
