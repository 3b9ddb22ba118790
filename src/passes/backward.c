/* Reverse-mode gradient: each op appends its own gradient nodes, in the reverse of forward order. Contributions to an
 * activation are added; contributions to a parameter are stored into its gradient as they come (the first written, the
 * next added), so that none waits for another. */
#include <string.h>

#include "graph/op.h"
#include "ops/add/add.h"
#include "ops/cast/cast.h"
#include "ops/matmul/matmul.h"
#include "passes/pass.h"

typedef struct backward {
    sn_graph *g;
    bool *needs;            /* by value: depends on something trainable */
    sn_vid *grad;           /* by value: gradient so far, SN_NONE */
    size_t n_values;        /* values of the forward graph */
    bool *stored;           /* by persistent: its gradient was written in this program */
    sn_dtype gradient_form; /* SN_DTYPE_COUNT: as the op gives it */
} backward;

static void mark_needs(backward *b) {
    sn_graph *g = b->g;
    for (size_t i = 0; i < b->n_values; i++) {
        sn_pid p = g->values[i].persistent;
        b->needs[i] = p != SN_NONE && g->job->persistent[p].trainable;
    }
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        bool needs = false;
        for (int i = 0; i < n->n_in; i++) needs |= n->in[i].value != SN_NONE && b->needs[n->in[i].value];
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != SN_NONE) b->needs[n->out[i]] = needs && sn_ops[n->op]->grad;
    }
}

static sn_pid gradient_of(sn_job *job, sn_pid p, sn_dtype form) {
    for (size_t i = 0; i < job->n_persistent; i++)
        if (job->persistent[i].parent == p && job->persistent[i].class_of == SN_CLASS_GRADIENTS) return (sn_pid)i;
    const char *name = sn_pool_printf(&job->pool, "%s.grad", job->persistent[p].name);
    sn_pid q = name ? sn_job_add_persistent(job, name, SN_CLASS_GRADIENTS, form, job->persistent[p].shape) : SN_NONE;
    if (q == SN_NONE) return q;
    sn_job_derive(job, q, p);
    return q;
}

/* Stores one contribution to the gradient of persistent p. */
static sn_status store(backward *b, sn_pid p, sn_vid contribution) {
    sn_graph *g = b->g;
    const char *name = sn_name(g, "%s.grad", g->job->persistent[p].name);
    if (b->gradient_form < SN_DTYPE_COUNT && g->values[contribution].dtype != b->gradient_form) {
        sn_attrs a = {0};
        a.i[SN_CAST_DTYPE] = b->gradient_form;
        contribution = sn_append1(g, SN_OP_cast, &a, 1, &contribution, name);
        SN_TRY(g->status);
    }
    sn_pid q = gradient_of(g->job, p, g->values[contribution].dtype);
    if (q == SN_NONE) return sn_fail(SN_ERR_NO_MEMORY, "cannot add the gradient of %s", g->job->persistent[p].name);
    if (g->job->persistent[q].rest.form != g->values[contribution].dtype)
        return sn_fail(SN_ERR_INTERNAL, "two uses of %s give gradients of different forms", g->job->persistent[p].name);
    sn_vid out[SN_MAX_OUT];
    if (!b->stored[p]) {
        sn_vid v = sn_append1(g, SN_OP_copy, NULL, 1, &contribution, name); /* move writes it in place where nothing lies between */
        SN_TRY(g->status);
        sn_use_persistent(g, q); /* makes room in the map */
        SN_TRY(g->status);
        g->values[v].persistent = q;
        g->values[v].name = g->job->persistent[q].name;
        g->values[v].class_of = SN_CLASS_GRADIENTS;
        g->values[v].rest = g->job->persistent[q].rest;
        g->of_persistent[q] = v;
    } else {
        sn_append(g, SN_OP_accumulate, NULL, 2, (sn_vid[]){sn_use_persistent(g, q), contribution}, name, out);
    }
    b->stored[p] = true;
    return g->status;
}

static sn_status add_contribution(backward *b, sn_vid v, sn_vid contribution) {
    sn_graph *g = b->g;
    if (g->values[v].persistent != SN_NONE) return store(b, g->values[v].persistent, contribution);
    if (b->grad[v] == SN_NONE) {
        b->grad[v] = contribution;
        return SN_OK;
    }
    sn_attrs a = {.f[SN_ADD_ALPHA] = 1};
    b->grad[v] = sn_append1(g, SN_OP_add, &a, 2, (sn_vid[]){b->grad[v], contribution}, "grad.sum");
    return g->status;
}

static sn_status differentiate(backward *b, sn_nid id, bool is_loss) {
    sn_graph *g = b->g;
    sn_node n = g->nodes[id];
    bool want[SN_MAX_IN] = {0}, wanted = false, reached = is_loss;
    sn_vid dout[SN_MAX_OUT], din[SN_MAX_IN];
    for (int i = 0; i < SN_MAX_IN; i++) {
        din[i] = SN_NONE;
        want[i] = i < n.n_in && n.in[i].value != SN_NONE && b->needs[n.in[i].value];
        wanted |= want[i];
    }
    for (int i = 0; i < SN_MAX_OUT; i++) {
        dout[i] = i < n.n_out && n.out[i] != SN_NONE ? b->grad[n.out[i]] : SN_NONE;
        reached |= dout[i] != SN_NONE;
    }
    if (!wanted || !reached) return SN_OK;
    if (is_loss) dout[0] = n.out[0];
    g->layer = n.layer;
    g->part = (sn_part)n.part;
    sn_status s = sn_ops[n.op]->grad(g, id, dout, want, din);
    if (s != SN_OK) return sn_fail_in(s, "gradient of %s %s", sn_ops[n.op]->name, n.name);
    for (int i = 0; i < n.n_in; i++)
        if (want[i] && din[i] != SN_NONE) SN_TRY(add_contribution(b, n.in[i].value, din[i]));
    return SN_OK;
}

static sn_status backward_graph(sn_graph *g, sn_dtype gradient_form) {
    backward b = {.g = g, .n_values = g->n_values, .gradient_form = gradient_form};
    size_t forward_nodes = g->n_order;
    b.needs = sn_alloc_zero(b.n_values, sizeof *b.needs);
    b.grad = sn_alloc(b.n_values * sizeof *b.grad);
    b.stored = sn_alloc_zero(g->job->n_persistent, sizeof *b.stored);
    sn_nid *forward = sn_alloc(forward_nodes * sizeof *forward);
    sn_status s = SN_OK;
    if (!b.needs || !b.grad || !b.stored || !forward) {
        s = sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the backward pass");
        goto done;
    }
    for (size_t i = 0; i < b.n_values; i++) b.grad[i] = SN_NONE;
    memcpy(forward, g->order, forward_nodes * sizeof *forward);
    mark_needs(&b);
    sn_insert_at_end(g, "backward");
    g->phase = SN_PHASE_BACKWARD;
    for (size_t k = forward_nodes; s == SN_OK && k-- > 0;) s = differentiate(&b, forward[k], sn_ops[g->nodes[forward[k]].op]->is_loss);
    g->phase = SN_PHASE_FORWARD;
    sn_insert_at_end(g, "model");
    for (size_t p = 0; s == SN_OK && p < g->job->n_persistent; p++) {
        const sn_persistent *e = &g->job->persistent[p];
        if (e->class_of == SN_CLASS_WEIGHTS && e->trainable && !b.stored[p])
            s = sn_fail(SN_ERR_PLAN, "%s is to be trained, but no gradient reaches it", e->name);
    }
    if (s == SN_OK) s = sn_graph_drop_unused(g);
done:
    sn_free(b.needs);
    sn_free(b.grad);
    sn_free(b.stored);
    sn_free(forward);
    return s;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    const char *form = sn_options_string(recipe, "gradient_dtype");
    sn_dtype gradient_form = !strcmp(form, "f32")    ? SN_F32
                             : !strcmp(form, "bf16") ? SN_BF16
                             : !strcmp(form, "fp16") ? SN_F16
                                                     : SN_DTYPE_COUNT;
    const char *precision = sn_options_string(recipe, "precision");
    if (gradient_form == SN_DTYPE_COUNT && strcmp(precision, "f32")) gradient_form = !strcmp(precision, "bf16") ? SN_BF16 : SN_F16;
    for (int k = 0; k < job->n_graphs; k++)
        if (job->graphs[k]->role == SN_ROLE_TRAIN) SN_TRY(backward_graph(job->graphs[k], gradient_form));
    return SN_OK;
}

const sn_pass sn_pass_backward = {.name = "backward", .saves = "reverse-mode gradient", .run = run};
