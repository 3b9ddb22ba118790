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

static void infer_node(sn_graph *g, sn_node *n, int a) {
    sn_call call;
    sn_node_call(g, n, &call);
    const sn_op *op = sn_ops[n->op];
    const char *axes = op->axes ? op->axes(&call) : NULL;
    char letter = 0;
    sn_split_axis shard = {0};
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i].value == SN_NONE) continue;
        sn_split_axis x = arriving(g, n, i, a);
        if (x.kind == SN_WHOLE || x.kind == SN_AT) continue;
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
