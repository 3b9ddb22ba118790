/* Activation recomputation: backward uses are fed by clones of forward nodes, so that what the originals made dies in
 * forward. A clone is the same kernel on the same inputs with the same random site, hence the same bits. Either all nodes
 * of a segment are cloned (Chen et al. 2016, arXiv 1604.06174), or only nodes whose inputs backward needs anyway: light ones
 * (norms and activation functions, which cost memory but hardly any time), and the attention op too (selective: Korthikanti
 * et al. 2022, arXiv 2205.05198). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "passes/pass.h"

static const sn_option options[] = {{.key = "recompute",
                                     .often = true,
                                     .aliases = "gradient_checkpointing",
                                     .kind = SN_OPTION_STRING,
                                     .default_text = "light",
                                     .metavar = "none|light|selective|attention|every:k|all",
                                     .help = "what backward computes again instead of keeping"}};

typedef enum mode { NONE, LIGHT, SELECTIVE, ATTENTION, BLOCKS } mode;

typedef struct recompute {
    mode mode;
    int every; /* BLOCKS: of a segment */
    sn_graph *g;
    sn_vid *clone_of; /* by value: its clone in the segment at work, or SN_NONE */
    bool *kept;       /* by value: backward needs it, or it is there all the time */
    size_t n_values;
} recompute;

static bool by_op(const recompute *r) { return r->mode == LIGHT || r->mode == SELECTIVE; }

/* What a node is made again with; -1: nothing. By op there are no segments, but clones are shared only within a block. */
static int segment_of(const recompute *r, const sn_node *n) {
    if (by_op(r)) return n->layer + 1;
    if (n->layer < 0) return -1;
    if (r->mode == ATTENTION) return n->part == SN_PART_ATTENTION ? n->layer : -1;
    return n->layer / r->every;
}

static bool is_chosen(const recompute *r, sn_vid v) {
    const sn_value *x = &r->g->values[v];
    if (v >= r->n_values || x->producer == SN_NONE || x->persistent != SN_NONE) return false;
    const sn_node *n = &r->g->nodes[x->producer];
    bool chosen = sn_ops[n->op]->light || (r->mode == SELECTIVE && n->op == SN_OP_attention);
    if (n->phase != SN_PHASE_FORWARD || !chosen) return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value != SN_NONE && !r->kept[n->in[i].value] && !is_chosen(r, n->in[i].value)) return false;
    return true;
}

/* Clones the forward node that makes v, and before it what it reads from its own segment. New nodes go to insert_at. */
static sn_vid clone_value(recompute *r, sn_vid v, int segment) {
    sn_graph *g = r->g;
    if (v >= r->n_values || g->values[v].producer == SN_NONE || g->values[v].persistent != SN_NONE) return v;
    if (r->clone_of[v] != SN_NONE) return r->clone_of[v];
    sn_nid origin = g->values[v].producer;
    sn_node n = g->nodes[origin];
    if (n.phase != SN_PHASE_FORWARD || segment_of(r, &n) != segment || (by_op(r) && !is_chosen(r, v))) return v;
    sn_use in[SN_MAX_IN];
    sn_vid out[SN_MAX_OUT];
    for (int i = 0; i < n.n_in; i++) {
        in[i] = n.in[i];
        if (in[i].value != SN_NONE) in[i].value = clone_value(r, in[i].value, segment);
    }
    sn_nid copy = sn_append_uses(g, n.op, &n.attrs, n.n_in, in, n.name, out);
    if (copy == SN_NONE) return SN_NONE;
    sn_node *c = &g->nodes[copy];
    c->layer = n.layer;
    c->part = n.part;
    c->phase = SN_PHASE_BACKWARD;
    c->origin = origin;
    c->site = n.site;
    for (int i = 0; i < n.n_out; i++)
        if (n.out[i] != SN_NONE) {
            r->clone_of[n.out[i]] = out[i];
            g->values[out[i]].result = g->values[n.out[i]].result;
            g->values[out[i]].rests_split = g->values[n.out[i]].rests_split;
            g->values[out[i]].rest.split = g->values[n.out[i]].rest.split;
        }
    return r->clone_of[v];
}

static void mark_kept(recompute *r) {
    const sn_graph *g = r->g;
    for (size_t v = 0; v < r->n_values; v++) r->kept[v] = g->values[v].producer == SN_NONE || g->values[v].persistent != SN_NONE;
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; n->phase == SN_PHASE_BACKWARD && i < n->n_in; i++)
            if (n->in[i].value != SN_NONE) r->kept[n->in[i].value] = true;
    }
}

static sn_status recompute_graph(sn_graph *g, mode how, int every) {
    recompute r = {.mode = how, .every = every, .g = g, .n_values = g->n_values};
    r.clone_of = sn_alloc(r.n_values * sizeof *r.clone_of);
    r.kept = sn_alloc(r.n_values * sizeof *r.kept);
    if (!r.clone_of || !r.kept) {
        sn_free(r.clone_of);
        sn_free(r.kept);
        return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the recompute pass");
    }
    for (size_t i = 0; i < r.n_values; i++) r.clone_of[i] = SN_NONE;
    mark_kept(&r);
    g->made_by = "recompute";
    for (size_t k = 0; g->status == SN_OK && k < g->n_order; k++) {
        sn_nid id = g->order[k];
        if (g->nodes[id].phase != SN_PHASE_BACKWARD || g->nodes[id].origin != SN_NONE) continue;
        int segment = segment_of(&r, &g->nodes[id]);
        if (segment < 0) continue;
        g->insert_at = k;
        for (int i = 0; i < g->nodes[id].n_in; i++) {
            sn_vid v = g->nodes[id].in[i].value;
            if (v == SN_NONE) continue;
            sn_vid clone = clone_value(&r, v, segment);
            g->nodes[id].in[i].value = clone;
        }
        k = g->insert_at;
    }
    sn_free(r.clone_of);
    sn_free(r.kept);
    sn_insert_at_end(g, "model");
    SN_TRY(g->status);
    return sn_graph_drop_unused(g);
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    const char *text = sn_options_string(recipe, "recompute");
    mode how = BLOCKS;
    int every = 1;
    if (!strcmp(text, "none") || !strcmp(text, "off") || !strcmp(text, "false")) how = NONE;
    else if (!strcmp(text, "light")) how = LIGHT;
    else if (!strcmp(text, "selective")) how = SELECTIVE;
    else if (!strcmp(text, "attention")) how = ATTENTION;
    else if (!strncmp(text, "every:", 6)) {
        char *end;
        long k = strtol(text + 6, &end, 10);
        every = end != text + 6 && !*end && k > 0 && k <= INT_MAX ? (int)k : -1;
    } else if (strcmp(text, "all") && strcmp(text, "on") && strcmp(text, "true")) every = -1;
    if (every < 0) return sn_fail(SN_ERR_USAGE, "recompute is '%s', wanted none, light, selective, attention, every:k or all", text);
    for (int k = 0; how != NONE && k < job->n_graphs; k++)
        if (sn_role_trains(job->graphs[k]->role)) SN_TRY(recompute_graph(job->graphs[k], how, every));
    return SN_OK;
}

static const sn_choice choices[] = {{"recompute", "none", SN_CHOICE_EXACT, {0}},      {"recompute", "light", SN_CHOICE_EXACT, {0}},
                                    {"recompute", "selective", SN_CHOICE_EXACT, {0}}, {"recompute", "attention", SN_CHOICE_EXACT, {0}},
                                    {"recompute", "every:4", SN_CHOICE_EXACT, {0}},   {"recompute", "every:2", SN_CHOICE_EXACT, {0}},
                                    {"recompute", "all", SN_CHOICE_EXACT, {0}}};

const sn_pass sn_pass_recompute = {.name = "recompute",
                                   .saves = "activations are made again in backward instead of kept",
                                   .run = run,
                                   .options = SN_OPTION_GROUP("Recomputation", options),
                                   SN_PASS_CHOICES(choices),
                                   .touches = SN_TOUCHES_ACTIVATIONS};
