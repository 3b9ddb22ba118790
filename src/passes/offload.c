/* Offload: optimizer states (moments and f32 masters) rest in the host tier, or on disk, between their uses. The pass says where
 * values rest and nothing else; what has to be moved follows (move). Bits do not change. Sources: ZeRO-Offload (Ren et al. 2021,
 * arXiv 2101.06840), ZeRO-Infinity (Rajbhandari et al. 2021, arXiv 2104.07857). */
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "offload_optimizer", .kind = SN_OPTION_STRING, .default_text = "none", .metavar = "none|host|disk[:F]",
     .help = "where optimizer states rest; F: the share of them, 0 to 1"},
    {.key = "offload_dir", .kind = SN_OPTION_STRING, .metavar = "DIR", .help = "folder for what rests on disk"}};

typedef struct place {
    sn_tier tier;
    double fraction;
} place;

static sn_status parse(const char *text, place *out) {
    size_t n = strcspn(text, ":");
    *out = (place){SN_TIER_DEVICE, 1};
    if (n == 4 && !strncmp(text, "host", n)) out->tier = SN_TIER_HOST;
    if (n == 4 && !strncmp(text, "disk", n)) out->tier = SN_TIER_DISK;
    if (!strcmp(text, "none")) return SN_OK;
    char *end = NULL;
    if (text[n]) out->fraction = strtod(text + n + 1, &end);
    if (out->tier == SN_TIER_DEVICE || (end && (end == text + n + 1 || *end)) || !(out->fraction > 0 && out->fraction <= 1))
        return sn_fail(SN_ERR_USAGE, "offload_optimizer is '%s', wanted none, host or disk, with a share in (0, 1] as disk:0.5", text);
    return SN_OK;
}

static bool is_state(const sn_persistent *e) { return e->class_of == SN_CLASS_OPTIMIZER && e->parent != SN_NONE; }

static uint64_t bytes_of(const sn_persistent *e) {
    size_t bytes;
    return sn_shape_bytes(&e->shape, e->rest.form, &bytes) ? bytes : 0;
}

static void set_tier(sn_job *job, sn_pid p, sn_tier tier) {
    job->persistent[p].rest.tier = tier;
    for (int k = 0; k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        if (p < g->n_of_persistent && g->of_persistent[p] != SN_NONE) g->values[g->of_persistent[p]].rest.tier = tier;
    }
}

/* All states of a parameter go together; parameters in their order, until the share is reached. */
static sn_status place_states(sn_job *job, const place *to) {
    uint64_t *states = sn_alloc_zero(job->n_persistent, sizeof *states), all = 0, placed = 0;
    if (!states) return sn_fail(SN_ERR_NO_MEMORY, "cannot count optimizer states");
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        if (!is_state(e)) continue;
        states[e->parent] += bytes_of(e);
        all += bytes_of(e);
    }
    for (size_t w = 0; w < job->n_persistent && (double)placed < to->fraction * (double)all; w++) placed += states[w];
    uint64_t before = 0;
    for (size_t w = 0; w < job->n_persistent; before += states[w++])
        if (before >= placed) states[w] = 0; /* stays */
    for (size_t p = 0; p < job->n_persistent; p++)
        if (is_state(&job->persistent[p]) && states[job->persistent[p].parent]) set_tier(job, (sn_pid)p, to->tier);
    sn_free(states);
    return SN_OK;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    place to;
    const char *folder = sn_options_string(recipe, "offload_dir");
    SN_TRY(parse(sn_options_string(recipe, "offload_optimizer"), &to));
    if (to.tier == SN_TIER_DEVICE) return SN_OK;
    if (to.tier == SN_TIER_HOST && cluster->addresses >> SN_TIER_HOST & 1)
        return sn_fail(SN_ERR_PLAN, "offload_optimizer host saves nothing: on this device host memory is device memory (disk would)");
    if (to.tier == SN_TIER_DISK && (!folder || !*folder))
        return sn_fail(SN_ERR_USAGE, "offload_optimizer disk needs offload_dir, a folder on a disk with room for the states");
    if (to.tier == SN_TIER_DISK && !(job->disk_folder = sn_pool_strdup(&job->pool, folder))) return sn_fail(SN_ERR_NO_MEMORY, "cannot keep offload_dir");
    return place_states(job, &to);
}

const sn_pass sn_pass_offload = {.name = "offload",
                                 .saves = "optimizer states rest in host memory or on disk",
                                 .run = run,
                                 .options = SN_OPTION_GROUP("Offload", options)};
