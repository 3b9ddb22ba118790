/* The table of passes, in the order in which they run, and the pairs that are refused. */
#include <string.h>

#include "passes/pass.h"

const sn_pass sn_passes[] = {
    /* adapt */
    {"lora", sn_pass_lora, &sn_lora_options, "gradients and states of small factors only; the base stays frozen"},
    {"quantise", sn_pass_quantise, &sn_quantise_options, "frozen weights stay in the form of their file"},
    {"precision", sn_pass_precision, &sn_precision_options, "16-bit activations, weights and gradients, f32 masters"},
    /* split */
    {"data_parallel", sn_pass_data_parallel, NULL, "rows spread over ranks; gradients are summed in rank order"},
    /* backward */
    {"backward", sn_pass_backward, NULL, "reverse-mode gradient"},
    /* update */
    {"accumulate", sn_pass_accumulate, &sn_accumulate_options, "a large batch in the activations of a small one"},
    {"optimizer", sn_pass_optimizer, &sn_optimizer_options, "gradient norm, clipping, AdamW or SGD"},
    /* place */
    {"recompute", sn_pass_recompute, &sn_recompute_options, "activations are made again in backward instead of kept"},
    {"move", sn_pass_move, NULL, "inserts copies, casts and collectives between result, rest and use"},
};
const size_t sn_n_passes = sizeof sn_passes / sizeof sn_passes[0];

static bool lora_and_full(const sn_options *r) { return sn_options_bool(r, "full") && (sn_options_bool(r, "lora") || sn_options_bool(r, "qlora")); }
static bool nothing_trains_quantised(const sn_options *r) {
    return sn_options_bool(r, "full") && sn_options_bool(r, "keep_quantised");
}

static const sn_conflict conflicts[] = {
    {lora_and_full, "--full trains every weight, --lora and --qlora freeze them: give one of the three"},
    {nothing_trains_quantised, "--full trains every weight, so none can stay quantised (quantised forms cannot be updated)"},
};

static bool listed(const char *name, const char *list) {
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, n) && (at[n] == 0 || at[n] == ',')) return true;
    return false;
}

sn_status sn_passes_run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster, const char *stop_after, const char *skip) {
    for (size_t i = 0; i < sizeof conflicts / sizeof conflicts[0]; i++)
        if (conflicts[i].holds(recipe)) return sn_fail(SN_ERR_PLAN, "%s", conflicts[i].reason);
    job->mesh = cluster->mesh;
    for (size_t i = 0; i < sn_n_passes; i++) {
        const sn_pass *p = &sn_passes[i];
        if (!listed(p->name, skip)) {
            sn_status s = p->run(job, recipe, cluster);
            if (s != SN_OK) return sn_fail_in(s, "pass %s", p->name);
            for (int k = 0; k < job->n_graphs; k++) {
                s = sn_graph_verify(job->graphs[k]);
                if (s != SN_OK) return sn_fail_in(s, "after pass %s", p->name);
            }
        }
        if (stop_after && !strcmp(stop_after, p->name)) break;
    }
    return SN_OK;
}

void sn_replace_uses(sn_graph *g, sn_vid from, sn_vid to, size_t first) {
    for (size_t k = first; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value == from) n->in[i].value = to;
    }
}

static void stamp(sn_graph *g, sn_nid n, const char *pass) {
    g->made_by = pass;
    g->layer = g->nodes[n].layer;
    g->part = (sn_part)g->nodes[n].part;
    g->phase = (sn_phase)g->nodes[n].phase;
}

void sn_insert_before(sn_graph *g, sn_nid n, const char *pass) {
    stamp(g, n, pass);
    g->insert_at = sn_graph_position(g, n);
}

void sn_insert_after(sn_graph *g, sn_nid n, const char *pass) {
    stamp(g, n, pass);
    g->insert_at = sn_graph_position(g, n) + 1;
}

void sn_insert_at_end(sn_graph *g, const char *pass) {
    g->made_by = pass;
    g->layer = -1;
    g->part = SN_PART_NONE;
    g->insert_at = SIZE_MAX;
}
