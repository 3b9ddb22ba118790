/* ZeRO: what every data-parallel rank would hold alike rests in flat shards instead, one a rank. Stage 1: optimizer states
 * (and f32 masters). Stage 2: gradients too. Stage 3: weights too. The rests alone say it: sums over ranks then end in
 * shards, updates work on shards, weights are gathered before their uses. Bits do not change: a shard holds whole units, over
 * which the norm is summed. Source: Rajbhandari et al. 2019 (arXiv 1910.02054). */
#include "ops/sum_squares/sum_squares.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "zero_stage", .deepspeed = "zero_optimization.stage", .kind = SN_OPTION_INT, .default_text = "0", .metavar = "0|1|2|3",
     .help = "split over ranks: 1 optimizer states, 2 gradients too, 3 weights too"}};

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

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    int64_t stage = sn_options_int(recipe, "zero_stage");
    if (stage < 0 || stage > 3) return sn_fail(SN_ERR_USAGE, "zero_stage is %lld, wanted 0, 1, 2 or 3", (long long)stage);
    if (!stage || cluster->mesh.size[SN_MESH_DP] <= 1) return SN_OK;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        if (stage_of(e) > stage || !worth_it(e)) continue;
        sn_home rest = e->rest;
        rest.split.axis[SN_MESH_DP] = (sn_split_axis){.kind = SN_SHARD, .dim = SN_SPLIT_FLAT, .unit = unit_of(e)};
        sn_job_set_rest(job, (sn_pid)p, rest);
    }
    return SN_OK;
}

/* Buckets, prefetch, how long gathered weights stay: the plan's matter here. */
static const char hints[] =
    "zero_optimization.overlap_comm,zero_optimization.contiguous_gradients,zero_optimization.reduce_scatter,"
    "zero_optimization.reduce_bucket_size,zero_optimization.allgather_partitions,zero_optimization.allgather_bucket_size,"
    "zero_optimization.round_robin_gradients,zero_optimization.sub_group_size,zero_optimization.stage3_prefetch_bucket_size,"
    "zero_optimization.stage3_param_persistence_threshold,zero_optimization.stage3_max_live_parameters,"
    "zero_optimization.stage3_max_reuse_distance,zero_optimization.stage3_gather_16bit_weights_on_model_save";

static const sn_choice choices[] = {{"zero_stage", "1", SN_CHOICE_EXACT, {0}}, {"zero_stage", "2", SN_CHOICE_EXACT, {0}}, {"zero_stage", "3", SN_CHOICE_EXACT, {0}}};

/* One rank alone has nothing to share. */
static bool offers(const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice) {
    (void)recipe, (void)choice;
    return cluster->mesh.size[SN_MESH_DP] > 1;
}

const sn_pass sn_pass_zero = {.name = "zero",
                              .saves = "optimizer states, gradients, weights in shards over the data-parallel ranks",
                              .run = run,
                              .options = SN_OPTION_GROUP("ZeRO", options),
                              .deepspeed_hints = hints,
                              SN_PASS_CHOICES(choices),
                              .touches = SN_TOUCHES_RESTS,
                              .offers = offers};
