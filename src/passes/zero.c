/* ZeRO: what every data-parallel rank would hold alike rests in flat shards instead, one a rank. Stage 1: optimizer states
 * (and f32 masters). Stage 2: gradients too. Stage 3: weights too. The rests alone say it: sums over ranks then end in
 * shards, updates work on shards, weights are gathered before their uses. Bits do not change: a shard holds whole units, over
 * which the norm is summed. Source: Rajbhandari et al. 2019 (arXiv 1910.02054).
 *
 * Two settings trade bits for what is sent. gradient_sync = step: each rank adds its own gradients over the micro-batches of a step, and
 * they are summed over the ranks once, before the update: another order of the same sums. zero_gather_dtype = int8: weights are gathered in
 * blocks of 32 of 8 bits, and used so; what rests is as it was. Source: Wang et al. 2023, ZeRO++ (arXiv 2306.10209), its quantised weights.
 *
 * zero_partition says over how many ranks shards are spread: all, or those of a node, of which each node then has all. Weights are gathered
 * inside a node; of gradients each rank sums its shard there, and that over the nodes, so sums have two levels: another order. With
 * gradient_sync = step what rests in shards is summed inside a node after each micro-batch, and over the nodes once a step. Sources: Zhang
 * et al. 2022, MiCS (arXiv 2205.00119), its partition groups and two-hop synchronisation; Zhao et al. 2023, FSDP (arXiv 2304.11277), its
 * hybrid sharding.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "ops/copy/copy.h"
#include "ops/sum_squares/sum_squares.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "zero_stage",
     .deepspeed = "zero_optimization.stage",
     .kind = SN_OPTION_INT,
     .default_text = "0",
     .metavar = "0|1|2|3",
     .help = "split over ranks: 1 optimizer states, 2 gradients too, 3 weights too"},
    {.key = "gradient_sync",
     .kind = SN_OPTION_CHOICE,
     .choices = "micro,step",
     .default_text = "micro",
     .help = "gradients are summed over ranks after each micro-batch, or once a step: less is sent, each rank holds them whole"},
    {.key = "zero_gather_dtype",
     .deepspeed = "zero_optimization.zero_quantized_weights=int8",
     .kind = SN_OPTION_CHOICE,
     .choices = "none,int8",
     .default_text = "none",
     .help = "form in which stage 3 gathers weights for their use: none: as they rest"},
    {.key = "zero_partition",
     .deepspeed = "zero_optimization.mics_shard_size",
     .kind = SN_OPTION_STRING,
     .default_text = "all",
     .metavar = "all|node|N",
     .help = "data-parallel ranks over which shards are spread: all, those of a node, or N in a row; each such group has everything"}};

enum { UNIT = SN_SUM_SQUARES_UNIT };

static int stage_of(const sn_persistent *e) {
    switch (e->class_of) {
    case SN_CLASS_OPTIMIZER: return e->parent == SN_NONE ? 4 : 1;
    case SN_CLASS_GRADIENTS: return 2;
    case SN_CLASS_WEIGHTS: return 3;
    default: return 4; /* never */
    }
}

/* Elements that stay together: a parameter's unit, or what a state holds for one. */
static int32_t unit_of(const sn_persistent *e) { return e->state_run ? UNIT / e->state_run : UNIT; }

/* A value of one unit would rest on one rank alone and save nothing that counts: it stays whole. */
static bool worth_it(const sn_persistent *e) {
    int64_t n;
    return sn_shape_elements(&e->shape, &n) && n > unit_of(e) && !e->rests_whole;
}

static const sn_split_axis partial = {.kind = SN_PARTIAL};

/* In the update: gradient p, a summand on each rank, is summed into shards, which everything behind reads. */
static sn_status sum_before_update(sn_graph *g, sn_pid p, size_t *at, bool whole_updates) {
    const sn_persistent *e = &g->job->persistent[p];
    const sn_vid v = p < g->n_of_persistent ? g->of_persistent[p] : SN_NONE;
    const sn_attrs a = {.i = {[SN_COPY_TIER] = SN_TIER_DEVICE}};
    sn_vid sum[SN_MAX_OUT];
    int64_t n;
    if (v == SN_NONE) return SN_OK;
    sn_use use = sn_use_of(v);
    use.has_split = true;
    use.split = e->rest.split;
    if (!sn_is_flat(&use.split.axis[SN_MESH_DP]) && sn_shape_elements(&e->shape, &n) && n > UNIT)
        use.split.axis[SN_MESH_DP] = (sn_split_axis){.kind = SN_SHARD, .dim = SN_SPLIT_FLAT, .unit = UNIT};
    use.pinned = 1u << SN_MESH_DP | 1u << SN_MESH_REPLICA;
    sn_insert_before(g, g->order[*at], "zero");
    sn_append_uses(g, SN_OP_copy, &a, 1, &use, e->name, sum);
    SN_TRY(g->status);
    ++*at;
    g->values[sum[0]].class_of = SN_CLASS_GRADIENTS;
    sn_replace_uses(g, v, sum[0], *at);
    for (size_t k = *at; whole_updates && k < g->n_order;
         k++) { /* their states rest whole: an update of a shard would have to be gathered */
        sn_node *node = &g->nodes[g->order[k]];
        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i].value != sum[0] || sn_ops[node->op]->flat_run) continue;
            node->in[i].has_split = true;
            node->in[i].split = e->rest.split;
            node->in[i].pinned |= use.pinned;
        }
    }
    return SN_OK;
}

static sn_status sum_once(sn_job *job, int64_t stage) {
    const int update = sn_job_role_index(job, SN_ROLE_UPDATE);
    size_t at = 0;
    if (update < 0) return SN_OK; /* one micro-batch a step: that is once */
    sn_graph *g = job->graphs[update];
    for (size_t p = 0; p < job->n_persistent; p++) {
        if (job->persistent[p].class_of != SN_CLASS_GRADIENTS) continue;
        sn_home rest = job->persistent[p].rest;
        const bool inside = job->mesh.size[SN_MESH_REPLICA] > 1 && sn_is_flat(&rest.split.axis[SN_MESH_DP]); /* summed there as they come */
        if (!inside) rest.split.axis[SN_MESH_DP] = (sn_split_axis){.kind = SN_WHOLE};
        job->persistent[p].rest = rest;
        SN_TRY(sum_before_update(g, (sn_pid)p, &at, stage == 0));
        if (!inside) rest.split.axis[SN_MESH_DP] = partial;
        if (job->mesh.size[SN_MESH_REPLICA] > 1) rest.split.axis[SN_MESH_REPLICA] = partial;
        sn_job_set_rest(job, (sn_pid)p, rest);
    }
    sn_insert_at_end(g, "model");
    return SN_OK;
}

/* Whether every rank's part of each row is whole blocks of a form. */
static bool in_blocks(const sn_value *v, sn_dtype form) {
    const int last = v->shape.rank - 1;
    if (v->shape.d[last] % sn_dtypes[form].block) return false;
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &v->rest.split.axis[a];
        if (x->kind == SN_SHARD && !sn_is_flat(x) && x->dim == last && x->unit % sn_dtypes[form].block) return false;
    }
    return true;
}

/* Uses of weights in shards, by ops that take 8-bit blocks as they are, get them so. */
static void gather_in_blocks(sn_graph *g) {
    for (size_t k = 0; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; n->phase != SN_PHASE_UPDATE && i < n->n_in; i++) {
            const sn_value *v = n->in[i].value == SN_NONE ? NULL : &g->values[n->in[i].value];
            if (!v || v->persistent == SN_NONE || v->class_of != SN_CLASS_WEIGHTS || !sn_is_flat(&v->rest.split.axis[SN_MESH_DP])) continue;
            if (!sn_dtype_is_float(v->dtype) || !in_blocks(v, SN_Q8_0) || sn_ops[n->op]->mutates >> i & 1) continue;
            sn_call call;
            sn_node_call(g, n, &call);
            if (sn_ops[n->op]->accepts && sn_ops[n->op]->accepts(&call, i, SN_Q8_0)) n->in[i].form = SN_Q8_0;
        }
    }
}

static sn_status replicas(const sn_options *recipe, const sn_mesh *mesh, int nodes, int *n) {
    const int ranks = sn_mesh_data_ranks(mesh), spread = sn_mesh_data_nodes(mesh, nodes);
    const char *text = sn_options_string(recipe, "zero_partition");
    const bool node = !strcmp(text, "node");
    char *end;
    long size = strtol(text, &end, 10);
    *n = 1;
    if (!strcmp(text, "all") || !strcmp(text, "-1")) return SN_OK; /* -1: DeepSpeed's word for it */
    if (node && nodes < 1)
        return sn_fail(SN_ERR_USAGE, "zero_partition is node, but the nodes do not all have the same number of ranks, one after the other "
                                     "(nodes says how many there are)");
    if (node && !spread)
        return sn_fail(SN_ERR_USAGE, "zero_partition is node, but of %d nodes some would have parts of two sets of %d data-parallel ranks",
                       nodes, ranks);
    if (node && ranks % spread)
        return sn_fail(SN_ERR_USAGE, "zero_partition is node, but %d data-parallel rank%s cannot be spread evenly over %d nodes", ranks,
                       ranks == 1 ? "" : "s", spread);
    if (node) size = ranks / spread;
    else if (end == text || *end || size < 1 || size > ranks || ranks % size)
        return sn_fail(SN_ERR_USAGE, "zero_partition is '%s', wanted all, node or a number that divides the %d data-parallel ranks", text,
                       ranks);
    if (size == 1 && ranks > 1)
        return sn_fail(SN_ERR_USAGE, "zero_partition is %s, which leaves one data-parallel rank: nothing would be in shards", text);
    *n = ranks / (int)size;
    return SN_OK;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    int64_t stage = sn_options_int(recipe, "zero_stage");
    if (stage < 0 || stage > 3) return sn_fail(SN_ERR_USAGE, "zero_stage is %lld, wanted 0, 1, 2 or 3", (long long)stage);
    if (cluster->mesh.size[SN_MESH_DP] <= 1) return SN_OK;
    for (size_t p = 0; stage && p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        if (stage_of(e) > stage || !worth_it(e)) continue;
        sn_home rest = e->rest;
        rest.split.axis[SN_MESH_DP] = (sn_split_axis){.kind = SN_SHARD, .dim = SN_SPLIT_FLAT, .unit = unit_of(e)};
        sn_job_set_rest(job, (sn_pid)p, rest);
    }
    for (int k = 0; !strcmp(sn_options_string(recipe, "zero_gather_dtype"), "int8") && k < job->n_graphs; k++) {
        const sn_role role = job->graphs[k]->role;
        if (sn_role_trains(role) || role == SN_ROLE_EVALUATE) gather_in_blocks(job->graphs[k]);
    }
    return !strcmp(sn_options_string(recipe, "gradient_sync"), "step") ? sum_once(job, stage) : SN_OK;
}

/* Buckets, prefetch, how long gathered weights stay: the plan's matter here. */
static const char hints[] =
    "zero_optimization.overlap_comm,zero_optimization.contiguous_gradients,zero_optimization.reduce_scatter,"
    "zero_optimization.reduce_bucket_size,zero_optimization.allgather_partitions,zero_optimization.allgather_bucket_size,"
    "zero_optimization.round_robin_gradients,zero_optimization.sub_group_size,zero_optimization.stage3_prefetch_bucket_size,"
    "zero_optimization.stage3_param_persistence_threshold,zero_optimization.stage3_max_live_parameters,"
    "zero_optimization.stage3_max_reuse_distance,zero_optimization.mics_hierarchical_params_gather,zero_optimization.stage3_gather_16bit_"
    "weights_on_model_save";

#define INSIDE_A_NODE \
    SN_CHOICE_REORDERED, { "zero_partition", "node" }
static const sn_choice choices[] = {{"zero_stage", "1", INSIDE_A_NODE}, {"zero_stage", "1", SN_CHOICE_EXACT, {0}},
                                    {"zero_stage", "2", INSIDE_A_NODE}, {"zero_stage", "2", SN_CHOICE_EXACT, {0}},
                                    {"zero_stage", "3", INSIDE_A_NODE}, {"zero_stage", "3", SN_CHOICE_EXACT, {0}}};
#undef INSIDE_A_NODE

/* One rank alone has nothing to share, one node no other. */
static bool offers(const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice) {
    const int ranks = sn_mesh_data_ranks(&cluster->mesh), nodes = sn_mesh_data_nodes(&cluster->mesh, cluster->nodes);
    if (!choice->also[0]) return ranks > 1;
    return nodes > 1 && ranks % nodes == 0 && ranks > nodes && !sn_options_given(recipe, "zero_partition");
}

const sn_pass sn_pass_zero = {.name = "zero",
                              .saves = "optimizer states, gradients, weights in shards over the data-parallel ranks",
                              .run = run,
                              .replicas = replicas,
                              .options = SN_OPTION_GROUP("ZeRO", options),
                              .deepspeed_hints = hints,
                              SN_PASS_CHOICES(choices),
                              .touches = SN_TOUCHES_RESTS,
                              .offers = offers};
