/* Inference of splits from the ops' index letters (graph/op.h, `axes`). */
#include <ctype.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/op.h"

/* The letters of operand `which` in "tk,nk->tn": inputs are 0 .., outputs follow. */
static const char *letters_of(const char *axes, int n_in, int which, int *count) {
    const char *at = axes;
    if (which >= n_in) {
        at = strstr(axes, "->");
        at = at ? at + 2 : axes + strlen(axes);
        which -= n_in;
    }
    for (; which > 0; which--) {
        at = strchr(at, ',');
        if (!at) break;
        at++;
    }
    *count = 0;
    if (!at) return "";
    while (isalpha((unsigned char)at[*count])) ++*count;
    return at;
}

static int find_letter(const char *letters, int count, char letter) {
    for (int i = 0; i < count; i++)
        if (letters[i] == letter) return i;
    return -1;
}

/* How input i arrives on mesh axis a: its use if a pass set one, else as the value is. */
static sn_split_axis arriving(const sn_graph *g, const sn_node *n, int i, int a) {
    if (n->in[i].has_split) return n->in[i].split.axis[a];
    const sn_value *v = &g->values[n->in[i].value];
    return v->has_rest ? v->rest.split.axis[a] : v->result.axis[a];
}

static void want(sn_graph *g, sn_node *n, int i, int a, sn_split_axis x) {
    if (!n->in[i].has_split) {
        n->in[i].split = g->values[n->in[i].value].result;
        n->in[i].has_split = true;
    }
    n->in[i].split.axis[a] = x;
}

static bool may_split(const char *letters, int n) {
    for (int i = 0; i < n; i++)
        if (!islower((unsigned char)letters[i])) return false;
    return n > 0;
}

/* Whether operand `which` has just these letters. */
static bool alike(const char *axes, int n_in, int which, const char *letters, int n) {
    int count;
    const char *own = letters_of(axes, n_in, which, &count);
    return count == n && !memcmp(own, letters, (size_t)n);
}

/* Whether the op works element by element along operand `which`: no other operand has some of its letters only. */
static bool elementwise(const sn_node *n, const char *axes, int which) {
    int count, other;
    const char *letters = letters_of(axes, n->n_in, which, &count);
    if (!may_split(letters, count)) return false;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        if (alike(axes, n->n_in, i, letters, count)) continue;
        const char *more = letters_of(axes, n->n_in, i, &other);
        for (int k = 0; k < other; k++)
            if (find_letter(letters, count, more[k]) >= 0) return false;
    }
    return true;
}

/* The flat shard on mesh axis a in which an operand arrives, or in which the result has to rest; *which: that operand. */
static bool find_flat(const sn_graph *g, const sn_node *n, int a, int *which, sn_split_axis *flat) {
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        *flat = arriving(g, n, i, a);
        *which = i;
        if (sn_is_flat(flat)) return true;
    }
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] == SN_NONE || g->values[n->out[o]].persistent == SN_NONE) continue;
        *flat = g->values[n->out[o]].rest.split.axis[a];
        *which = n->n_in + o;
        if (sn_is_flat(flat)) return true;
    }
    return false;
}

/* Elementwise ops and reductions of runs take flat shards: operands alike arrive so, results come out so. */
static bool infer_flat(sn_graph *g, sn_node *n, int a, const sn_op *op, const char *axes) {
    int which, count;
    sn_split_axis flat;
    if (!find_flat(g, n, a, &which, &flat)) return false;
    if (op->flat_run && n->n_out && which == 0 && flat.unit % op->flat_run == 0) {
        flat.unit /= op->flat_run;
        g->values[n->out[0]].result.axis[a] = flat;
        return true;
    }
    if (!axes || !elementwise(n, axes, which)) return false;
    const char *letters = letters_of(axes, n->n_in, which, &count);
    if (op->flat_runs_in && flat.unit % op->flat_run) return false;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        bool same = alike(axes, n->n_in, i, letters, count);
        sn_split_axis x = arriving(g, n, i, a);
        if (op->flat_runs_in >> i & 1) {
            sn_split_axis runs = flat;
            runs.unit /= op->flat_run;
            if (!sn_is_flat(&x)) want(g, n, i, a, runs);
            continue;
        }
        if (same && !sn_is_flat(&x)) want(g, n, i, a, flat);
        if (!same && x.kind != SN_WHOLE) want(g, n, i, a, (sn_split_axis){.kind = SN_WHOLE});
    }
    for (int o = 0; o < n->n_out; o++)
        if (n->out[o] != SN_NONE)
            g->values[n->out[o]].result.axis[a] = alike(axes, n->n_in, n->n_in + o, letters, count) ? flat : (sn_split_axis){.kind = SN_WHOLE};
    return true;
}

/* ---- Some ranks only ---- */

static bool is_within(const sn_split_axis *inner, const sn_split_axis *outer) {
    return sn_axis_holds(outer, inner->at) && sn_axis_holds(outer, inner->also);
}

/* Leaves of *here what x is at too. Where they have nothing in common *here stays, and x is moved. */
static void narrow(sn_split_axis *here, const sn_split_axis *x) {
    if (x->kind != SN_AT) return;
    if (here->kind != SN_AT) *here = *x;
    else if (!is_within(here, x) && sn_axis_holds(x, here->at)) *here = sn_at(here->at);
    else if (!is_within(here, x) && sn_axis_holds(x, here->also)) *here = sn_at(here->also);
}

/* Where a node runs on axis a: where its persistent values are, else where what it reads is. What is added to a summand, which
 * each rank has, is added once. */
static sn_split_axis place_of(const sn_graph *g, const sn_node *n, int a) {
    sn_split_axis here = n->is_placed ? n->where.axis[a] : (sn_split_axis){.kind = SN_WHOLE};
    bool summand = false;
    for (int persistent = 1; persistent >= 0; persistent--) {
        for (int o = 0; persistent && o < n->n_out; o++)
            if (n->out[o] != SN_NONE && g->values[n->out[o]].persistent != SN_NONE) narrow(&here, &g->values[n->out[o]].rest.split.axis[a]);
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i].value == SN_NONE) continue;
            const sn_value *v = &g->values[n->in[i].value];
            if ((v->persistent != SN_NONE) != persistent) continue;
            narrow(&here, persistent ? &v->rest.split.axis[a] : &v->result.axis[a]);
            summand |= (sn_ops[n->op]->mutates >> i & 1) && v->result.axis[a].kind == SN_PARTIAL;
        }
    }
    return summand ? sn_at(here.kind == SN_AT ? here.at : 0) : here;
}

/* A use that another axis needed was noted down before it was known where the value is. */
static void refresh(const sn_graph *g, sn_node *n, int a) {
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE || !n->in[i].has_split) continue;
        const sn_split_axis *x = &g->values[n->in[i].value].result.axis[a];
        if (x->kind == SN_AT && n->in[i].split.axis[a].kind == SN_WHOLE) n->in[i].split.axis[a] = *x;
    }
}

/* A node that runs on some ranks only takes its operands there, and leaves its results there. */
static bool infer_place(sn_graph *g, sn_node *n, int a) {
    if (sn_ops[n->op]->comm_axis && n->is_placed && n->attrs.i[sn_ops[n->op]->comm_axis - 1] == a) return true; /* it changes where things are */
    sn_split_axis here = place_of(g, n, a);
    n->where.axis[a] = here;
    if (here.kind != SN_AT) return false;
    refresh(g, n, a);
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        sn_split_axis x = arriving(g, n, i, a);
        bool summand = x.kind == SN_PARTIAL && sn_ops[n->op]->mutates >> i & 1;
        if (x.kind == SN_AT ? !is_within(&here, &x) : x.kind != SN_WHOLE && !summand) want(g, n, i, a, x.kind == SN_AT ? here : (sn_split_axis){.kind = SN_WHOLE});
    }
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] == SN_NONE) continue;
        sn_value *v = &g->values[n->out[o]];
        v->result.axis[a] = v->persistent != SN_NONE ? v->rest.split.axis[a] : here;
    }
    return true;
}

static void infer_node(sn_graph *g, sn_node *n, int a) {
    if (infer_place(g, n, a)) return;
    sn_call call;
    sn_node_call(g, n, &call);
    const sn_op *op = sn_ops[n->op];
    const char *axes = op->axes ? op->axes(&call) : NULL;
    if (infer_flat(g, n, a, op, axes)) return;
    char letter = 0;
    sn_split_axis shard = {0};
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        sn_split_axis x = arriving(g, n, i, a);
        if (x.kind == SN_WHOLE) continue;
        int count = 0;
        const char *letters = axes ? letters_of(axes, n->n_in, i, &count) : "";
        if (!letter && x.kind == SN_SHARD && x.dim < count && islower((unsigned char)letters[x.dim])) {
            letter = letters[x.dim];
            shard = x;
        } else if (!(letter && x.kind == SN_SHARD && x.dim < count && letters[x.dim] == letter)) {
            want(g, n, i, a, (sn_split_axis){.kind = SN_WHOLE});
        }
    }
    for (int i = 0; letter && i < n->n_in; i++) { /* operands with the letter come sharded alike: a view of a whole one */
        if (n->in[i].value == SN_NONE) continue;
        int count, dim;
        const char *letters = letters_of(axes, n->n_in, i, &count);
        if ((dim = find_letter(letters, count, letter)) < 0) continue;
        sn_split_axis x = shard;
        x.dim = (uint8_t)dim;
        if (arriving(g, n, i, a).kind != SN_SHARD) want(g, n, i, a, x);
    }
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] == SN_NONE) continue;
        sn_split_axis x = {.kind = SN_WHOLE};
        if (letter) {
            int count, dim;
            const char *letters = letters_of(axes, n->n_in, n->n_in + o, &count);
            dim = find_letter(letters, count, letter);
            if (dim >= 0) {
                x = shard;
                x.dim = (uint8_t)dim;
            } else {
                x.kind = SN_PARTIAL;
            }
        }
        g->values[n->out[o]].result.axis[a] = x;
    }
}

sn_status sn_graph_infer_splits(sn_graph *g) {
    for (int a = 0; a < SN_MESH_AXES; a++) {
        if (g->job->mesh.size[a] <= 1) continue;
        for (size_t k = 0; k < g->n_order; k++) infer_node(g, &g->nodes[g->order[k]], a);
    }
    return SN_OK;
}
