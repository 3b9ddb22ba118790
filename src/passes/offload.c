/* Offload: optimizer states (moments and f32 masters), gradients, weights rest in the host tier, or on disk, between their uses. The pass
 * says where values rest and nothing else; what has to be moved follows (move). Bits do not change. Sources: ZeRO-Offload (Ren et al. 2021,
 * arXiv 2101.06840), ZeRO-Infinity (Rajbhandari et al. 2021, arXiv 2104.07857). */
#include <stdlib.h>
#include <string.h>

#include "passes/offload.h"

#define PLACE_OPTION(name, what, says)                                                                  \
    {                                                                                                   \
        .key = name, .kind = SN_OPTION_STRING, .default_text = "none", .metavar = "none|host|disk[:F]", \
        .help = "where " what " rest; F: the share of them, 0 to 1", .deepspeed = says                  \
    }

/* DeepSpeed's tiers: an accelerator's host memory, a disk. */
#define TIERS(path) path ":none=none," path ":cpu=host," path ":nvme=disk"
#define OPTIMIZER "zero_optimization.offload_optimizer."
#define PARAM "zero_optimization.offload_param."

static const sn_option options[] = {PLACE_OPTION("offload_optimizer", "optimizer states", TIERS(OPTIMIZER "device")),
                                    PLACE_OPTION("offload_gradients", "gradients", NULL),
                                    PLACE_OPTION("offload_param", "weights", TIERS(PARAM "device")),
                                    {.key = "offload_ratio",
                                     .deepspeed = OPTIMIZER "ratio",
                                     .kind = SN_OPTION_FLOAT,
                                     .default_text = "1",
                                     .metavar = "F",
                                     .help = "the share of optimizer states where offload_optimizer names none"},
                                    {.key = "offload_dir",
                                     .deepspeed = OPTIMIZER "nvme_path," PARAM "nvme_path",
                                     .by_rank = true,
                                     .kind = SN_OPTION_STRING,
                                     .metavar = "DIR",
                                     .help = "folder for what rests on disk"}};

static const struct {
    const char *key;
    sn_class class_of;
} kinds[] = {{"offload_optimizer", SN_CLASS_OPTIMIZER}, {"offload_gradients", SN_CLASS_GRADIENTS}, {"offload_param", SN_CLASS_WEIGHTS}};

static sn_status parse(const char *text, sn_offload_place *out) {
    size_t n = strcspn(text, ":");
    out->tier = SN_TIER_DEVICE;
    out->share = 1;
    out->named = text[n];
    if (!strcmp(text, "none")) return SN_OK;
    if (n == 4 && !strncmp(text, "host", n)) out->tier = SN_TIER_HOST;
    if (n == 4 && !strncmp(text, "disk", n)) out->tier = SN_TIER_DISK;
    char *end = NULL;
    if (out->named) out->share = strtod(text + n + 1, &end);
    if (out->tier == SN_TIER_DEVICE || (end && (end == text + n + 1 || *end)) || !(out->share > 0 && out->share <= 1))
        return sn_fail(SN_ERR_USAGE, "%s is '%s', wanted none, host or disk, with a share in (0, 1] as disk:0.5", out->key, text);
    return SN_OK;
}

sn_status sn_offload_read(sn_job *job, const sn_options *recipe, const sn_cluster *cluster, const char *key, sn_offload_place *out) {
    const char *folder = sn_options_string(recipe, "offload_dir");
    out->key = key;
    SN_TRY(parse(sn_options_string(recipe, key), out));
    if (out->tier == SN_TIER_HOST && cluster->addresses >> SN_TIER_HOST & 1)
        return sn_fail(SN_ERR_PLAN, "%s host saves nothing: on this device host memory is device memory (disk would)", key);
    if (out->tier != SN_TIER_DISK) return SN_OK;
    if (!folder || !*folder) return sn_fail(SN_ERR_USAGE, "%s disk needs offload_dir, a folder on a disk with room for them", key);
    job->disk_folder = sn_pool_strdup(&job->pool, folder);
    return job->disk_folder ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot keep offload_dir");
}

static bool is_placed(const sn_job *job, sn_pid p, sn_class class_of) {
    const sn_persistent *e = &job->persistent[p];
    return e->class_of == class_of && (class_of != SN_CLASS_OPTIMIZER || e->parent != SN_NONE);
}

/* The parameter that a value belongs to. */
static sn_pid owner(const sn_job *job, sn_pid p) { return job->persistent[p].parent == SN_NONE ? p : job->persistent[p].parent; }

static uint64_t bytes_of(const sn_persistent *e) {
    size_t bytes;
    return sn_shape_bytes(&e->shape, e->rest.form, &bytes) ? bytes : 0;
}

/* All values of a parameter go together; parameters in their order, until the share is reached. */
static sn_status place_values(sn_job *job, sn_class class_of, const sn_offload_place *to) {
    uint64_t *bytes = sn_alloc_zero(job->n_persistent, sizeof *bytes), all = 0, placed = 0;
    if (!bytes) return sn_fail(SN_ERR_NO_MEMORY, "cannot count %s", sn_class_name(class_of));
    for (size_t p = 0; p < job->n_persistent; p++) {
        if (!is_placed(job, (sn_pid)p, class_of)) continue;
        bytes[owner(job, (sn_pid)p)] += bytes_of(&job->persistent[p]);
        all += bytes_of(&job->persistent[p]);
    }
    for (size_t w = 0; w < job->n_persistent; w++) {
        uint64_t own = bytes[w];
        if ((double)placed >= to->share * (double)all) bytes[w] = 0; /* stays */
        placed += own;
    }
    for (size_t p = 0; p < job->n_persistent; p++) {
        if (!is_placed(job, (sn_pid)p, class_of) || !bytes[owner(job, (sn_pid)p)]) continue;
        sn_home rest = job->persistent[p].rest;
        rest.tier = to->tier;
        sn_job_set_rest(job, (sn_pid)p, rest);
    }
    sn_free(bytes);
    return SN_OK;
}

static sn_status read_ratio(const sn_options *recipe, double *share) {
    *share = sn_options_float(recipe, "offload_ratio");
    if (*share > 0 && *share <= 1) return SN_OK;
    return sn_fail(SN_ERR_USAGE, "offload_ratio is %g, wanted a share in (0, 1]", *share);
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        sn_offload_place to;
        SN_TRY(sn_offload_read(job, recipe, cluster, kinds[k].key, &to));
        if (kinds[k].class_of == SN_CLASS_OPTIMIZER && !to.named) SN_TRY(read_ratio(recipe, &to.share));
        if (to.tier != SN_TIER_DEVICE) SN_TRY(place_values(job, kinds[k].class_of, &to));
    }
    return SN_OK;
}

static bool decided(const sn_options *recipe) {
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (sn_options_given(recipe, kinds[k].key)) return true;
    return false;
}

/* To the host where the device has memory of its own, to disk where a folder is named. */
static bool offers(const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice) {
    const char *folder = sn_options_string(recipe, "offload_dir");
    if (!strncmp(choice->value, "host", 4)) return !(cluster->addresses >> SN_TIER_HOST & 1);
    return folder && *folder;
}

/* States first, as they are used once a step; weights last, as forward and backward read them. Beside adapters there are hardly any states.
 */
#define PLACES(tier)                                                                                                 \
    {"offload_param", tier ":0.5", SN_CHOICE_EXACT, {0}}, {"offload_param", tier, SN_CHOICE_EXACT, {0}},             \
        {"offload_optimizer", tier ":0.5", SN_CHOICE_EXACT, {0}}, {"offload_optimizer", tier, SN_CHOICE_EXACT, {0}}, \
        {"offload_optimizer", tier, SN_CHOICE_EXACT, {"offload_gradients", tier}},                                   \
        {"offload_optimizer", tier, SN_CHOICE_EXACT, {"offload_gradients", tier, "offload_param", tier ":0.5"}}, {   \
        "offload_optimizer", tier, SN_CHOICE_EXACT, { "offload_gradients", tier, "offload_param", tier }             \
    }
static const sn_choice choices[] = {PLACES("host"), PLACES("disk")};

/* Sizes and numbers of buffers, how requests are handed to the disk: the plan's matter here. */
static const char hints[] = OPTIMIZER "pin_memory," OPTIMIZER "buffer_count," OPTIMIZER "fast_init," OPTIMIZER "pipeline_read," OPTIMIZER
                                      "pipeline_write," PARAM "pin_memory," PARAM "buffer_count," PARAM "buffer_size," PARAM "max_in_cpu,"
                                      "aio.block_size,aio.queue_depth,aio.thread_count,aio.intra_op_parallelism,aio.single_submit,"
                                      "aio.overlap_events,aio.use_gds";

const sn_pass sn_pass_offload = {.name = "offload",
                                 .saves = "optimizer states, gradients, weights rest in host memory or on disk",
                                 .run = run,
                                 .options = SN_OPTION_GROUP("Offload", options),
                                 SN_PASS_CHOICES(choices),
                                 .touches = SN_TOUCHES_RESTS,
                                 .folder_key = "offload_dir",
                                 .deepspeed_hints = hints,
                                 .decided = decided,
                                 .offers = offers};
