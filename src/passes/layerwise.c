/* Layer-wise training: one block at a time is trained, for so many updates, then another: only its gradients, states and f32 masters exist.
 * In its turn a block is updated by any rule, with states that begin at zero. The embeddings, with what is tied to them, are the first
 * block, what lies behind the last layer (norm, head) the last one. The pass says in which turn each weight is trained; that backward ends
 * there, and that turns share bytes, follows (plan/turns.c).
 *
 * Source: BAdam, Luo et al. 2024 (arXiv 2404.02827); the names of the options that LLaMA-Factory has for it are accepted, too. */
#include <string.h>

#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "layerwise", .aliases = "use_badam", .kind = SN_OPTION_FLAG, .help = "train one block at a time, in turns (BAdam)"},
    {.key = "layerwise_steps",
     .aliases = "badam_switch_interval",
     .kind = SN_OPTION_INT,
     .default_text = "50",
     .metavar = "K",
     .has_least = true,
     .least = 1,
     .help = "updates of a turn"},
    {.key = "layerwise_order",
     .aliases = "badam_switch_mode",
     .kind = SN_OPTION_CHOICE,
     .choices = "random,ascending,descending",
     .default_text = "random",
     .help = "of the blocks: each once a round in random order, or from first to last, or back"},
    {.key = "layerwise_embeddings",
     .kind = SN_OPTION_SWITCH,
     .default_text = "on",
     .help = "embeddings, last norm and head take their turns too; off: they stay as they are"}};

/* Of a weight outside the layers: whether it is used before the first of them. */
static bool comes_first(const sn_graph *g, sn_pid p) {
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE && g->values[n->in[i].value].persistent == p) return true;
        if (n->layer >= 0) return false;
    }
    return false;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    const int train = sn_job_role_index(job, SN_ROLE_TRAIN);
    if (train < 0 || !sn_options_bool(recipe, "layerwise")) return SN_OK;
    const bool outer = sn_options_bool(recipe, "layerwise_embeddings");
    const char *order = sn_options_string(recipe, "layerwise_order");
    int32_t layers = 0, before = 0, behind = 0;
    for (size_t p = 0; p < job->n_persistent; p++) {
        sn_persistent *e = &job->persistent[p];
        if (e->class_of != SN_CLASS_WEIGHTS || !e->trainable) continue;
        if (e->layer < 0) e->trainable = outer;
        if (e->layer >= layers) layers = e->layer + 1;
        if (e->layer >= 0 || !outer) continue;
        if (comes_first(job->graphs[train], (sn_pid)p)) before = 1;
        else behind = 1;
    }
    for (size_t p = 0; p < job->n_persistent; p++) {
        sn_persistent *e = &job->persistent[p];
        if (e->class_of != SN_CLASS_WEIGHTS || !e->trainable) continue;
        e->turn = e->layer >= 0 ? before + e->layer : comes_first(job->graphs[train], (sn_pid)p) ? 0 : before + layers;
    }
    if (before + layers + behind >= UINT16_MAX) return sn_fail(SN_ERR_UNSUPPORTED, "layerwise takes at most %d layers", UINT16_MAX - 3);
    job->turns = (sn_turns){.count = before + layers + behind,
                            .steps = sn_options_int(recipe, "layerwise_steps"),
                            .seed = (uint64_t)sn_options_int(recipe, "seed")};
    job->turns.order = !strcmp(order, "random") ? SN_TURNS_RANDOM : !strcmp(order, "ascending") ? SN_TURNS_ASCENDING : SN_TURNS_DESCENDING;
    return SN_OK;
}

static bool with_adapters(const sn_options *r) {
    return sn_options_bool(r, "layerwise") && (sn_options_bool(r, "lora") || sn_options_bool(r, "qlora"));
}
static const sn_conflict conflicts[] = {
    {with_adapters, "layerwise trains the model's own weights in turns, --lora and --qlora freeze them, and the gradients and states of "
                    "all adapters together are small: give one of them"}};

const sn_pass sn_pass_layerwise = {.name = "layerwise",
                                   .saves = "gradients, states and masters of one block at a time; backward ends there",
                                   .run = run,
                                   .options = SN_OPTION_GROUP("Layer-wise training", options),
                                   SN_PASS_CONFLICTS(conflicts)};
