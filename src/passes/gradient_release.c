/* Gradient release: a parameter is updated inside backward, as soon as its gradient is complete and nothing reads the parameter any
 * more, so that its gradient dies at once and at no time all gradients exist. Nothing but the order of the program changes: each update
 * is the same op on the same numbers. The norm over all gradients is known only behind the last update, so it is reported, not used.
 *
 * Source: LOMO, Lv et al. 2023 (arXiv 2306.09782), with any rule of update. */
#include <string.h>

#include "graph/op.h"
#include "ops/clip_factor/clip_factor.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "gradient_release",
     .kind = SN_OPTION_FLAG,
     .help = "update inside backward, each parameter when its gradient is complete (needs max_grad_norm 0)"}};

/* The node that makes the clip factor from all norms; SN_NONE: there is no update here. */
static sn_nid find_clip(const sn_graph *g) {
    for (size_t k = 0; k < g->n_order; k++)
        if (g->nodes[g->order[k]].op == SN_OP_clip_factor) return g->order[k];
    return SN_NONE;
}

/* What sum_squares made of the gradient that this node reads; SN_NONE: it reads none. */
static sn_vid units_of(const sn_graph *g, const sn_node *update) {
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        if (n->op != SN_OP_sum_squares) continue;
        for (int i = 0; i < update->n_in; i++)
            if (update->in[i].value == n->in[0].value) return n->out[0];
    }
    return SN_NONE;
}

/* Each update gets a factor of its own gradient's, which says whether that one is finite, in all of its parts. */
static sn_status own_factors(sn_graph *g, sn_nid clip) {
    const sn_vid all = g->nodes[clip].out[0], hyper = g->nodes[clip].in[1].value;
    g->nodes[clip].attrs.i[SN_CLIP_FACTOR_LATE] = 1;
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_nid id = g->order[k];
        for (int i = 0; i < g->nodes[id].n_in; i++) {
            if (g->nodes[id].in[i].value != all) continue;
            sn_vid units = units_of(g, &g->nodes[id]);
            if (units == SN_NONE) return sn_fail(SN_ERR_INTERNAL, "%s is updated without a gradient", g->nodes[id].name);
            sn_insert_before(g, id, "gradient_release");
            sn_vid sum = sn_append1(g, SN_OP_sum_units, NULL, 1, &units, g->nodes[id].name);
            sn_vid own = sn_append1(g, SN_OP_clip_factor, NULL, 2, (sn_vid[]){sum, hyper}, g->nodes[id].name);
            SN_TRY(g->status);
            g->nodes[id].in[i].value = own;
            k += 2; /* the node moved up by two */
        }
    }
    return SN_OK;
}

/* By node: the position in the order behind which an update node may stand. */
typedef struct schedule {
    sn_graph *g;
    size_t *touched; /* by value: 1 + the last position outside the update that reads or writes it; 0: none */
    size_t *after;   /* by node of the update, likewise */
} schedule;

static void note_touches(schedule *s) {
    const sn_graph *g = s->g;
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        if (n->phase == SN_PHASE_UPDATE) continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE) s->touched[n->in[i].value] = k + 1;
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != SN_NONE) s->touched[n->out[i]] = k + 1;
    }
}

static size_t earliest(const schedule *s, sn_nid id, sn_nid last) {
    const sn_graph *g = s->g;
    const sn_node *n = &g->nodes[id];
    size_t after = 0;
    if (id == last) return g->n_order;
    for (int i = 0; i < n->n_in; i++) {
        sn_vid v = n->in[i].value;
        if (v == SN_NONE) continue;
        sn_nid maker = g->values[v].producer;
        size_t k = maker != SN_NONE && g->nodes[maker].phase == SN_PHASE_UPDATE ? s->after[maker] : s->touched[v];
        if (k > after) after = k;
    }
    return after;
}

/* Every update node moves up to where it may stand; `last` stays behind all. The nodes of a parameter keep their order. */
static sn_status move_up(schedule *s, sn_nid last) {
    sn_graph *g = s->g;
    const size_t n = g->n_order;
    sn_nid *order = sn_alloc(n * sizeof *order);
    size_t *first = sn_alloc_zero(n + 2, sizeof *first); /* by position: where the nodes that follow it begin among the updates */
    sn_nid *updates = sn_alloc(n * sizeof *updates);
    sn_status status = order && first && updates ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot order %s", g->name);
    if (status == SN_OK) {
        note_touches(s);
        for (size_t k = 0; k < n; k++)
            if (g->nodes[g->order[k]].phase == SN_PHASE_UPDATE) first[1 + (s->after[g->order[k]] = earliest(s, g->order[k], last))]++;
        for (size_t k = 0; k <= n; k++) first[k + 1] += first[k];
        for (size_t k = 0; k < n; k++)
            if (g->nodes[g->order[k]].phase == SN_PHASE_UPDATE) updates[first[s->after[g->order[k]]]++] = g->order[k];
        size_t taken = 0, kept = 0; /* first[k] is now where the nodes behind k positions end */
        for (size_t k = 0; k <= n; k++) {
            if (k && g->nodes[g->order[k - 1]].phase != SN_PHASE_UPDATE) order[kept++] = g->order[k - 1];
            while (taken < first[k]) order[kept++] = updates[taken++];
        }
        memcpy(g->order, order, n * sizeof *order);
    }
    sn_free(order);
    sn_free(first);
    sn_free(updates);
    return status;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    int k = sn_job_role_index(job, SN_ROLE_TRAIN);
    if (k < 0 || !sn_options_bool(recipe, "gradient_release")) return SN_OK;
    sn_graph *g = job->graphs[k];
    sn_nid clip = find_clip(g);
    if (clip == SN_NONE) return SN_OK; /* the table was stopped before the update */
    SN_TRY(own_factors(g, clip));
    schedule s = {.g = g};
    s.touched = sn_alloc_zero(g->n_values, sizeof *s.touched);
    s.after = sn_alloc_zero(g->n_nodes, sizeof *s.after);
    sn_status status = s.touched && s.after ? move_up(&s, clip) : sn_fail(SN_ERR_NO_MEMORY, "cannot order %s", g->name);
    sn_free(s.touched);
    sn_free(s.after);
    sn_insert_at_end(g, "model");
    return status;
}

static bool is_on(const sn_options *recipe) { return sn_options_bool(recipe, "gradient_release"); }
static bool clips(const sn_options *r) { return is_on(r) && sn_options_float(r, "max_grad_norm") > 0; }
static bool scales(const sn_options *r) { return is_on(r) && !strcmp(sn_options_string(r, "precision"), "fp16"); }
static bool accumulates(const sn_options *r) { return is_on(r) && sn_options_int(r, "gradient_accumulation_steps") > 1; }

static const sn_conflict conflicts[] = {
    {clips, "gradient_release updates before the norm of all gradients is known: it needs --max-grad-norm 0"},
    {scales, "gradient_release cannot take an update back: with --precision fp16 an overflow that shows late in backward has to skip the "
             "whole step"},
    {accumulates, "gradient_release keeps no gradient, so there is nothing to accumulate into: gradient_accumulation_steps must be 1"}};

/* Where nothing forbids it. */
static bool offers(const sn_options *r, const sn_cluster *cluster, const sn_choice *choice) {
    (void)cluster, (void)choice;
    return !(sn_options_float(r, "max_grad_norm") > 0) && sn_options_int(r, "gradient_accumulation_steps") == 1 &&
           strcmp(sn_options_string(r, "precision"), "fp16");
}

static const sn_choice choices[] = {{"gradient_release", "true", SN_CHOICE_EXACT, {0}}};

const sn_pass sn_pass_gradient_release = {.name = "gradient_release",
                                          .saves = "updates inside backward: no more than the largest gradient at a time",
                                          .run = run,
                                          .options = SN_OPTION_GROUP("Gradient release", options),
                                          SN_PASS_CHOICES(choices),
                                          .touches = SN_TOUCHES_RESTS,
                                          .offers = offers,
                                          SN_PASS_CONFLICTS(conflicts)};
