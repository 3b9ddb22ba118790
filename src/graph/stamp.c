/* One program appended to another: as often as there are micro-batches, say. */
#include <string.h>

#include "graph/graph.h"

/* The value of `to` that stands for value v of `from`, whose nodes become node_of[]. */
static sn_vid stamp_value(sn_graph *to, const sn_value *v, const char *suffix, const sn_nid *node_of) {
    if (v->persistent != SN_NONE) {
        sn_vid own = sn_use_persistent(to, v->persistent);
        if (own != SN_NONE && v->producer != SN_NONE && to->values[own].producer == SN_NONE)
            to->values[own].producer = node_of[v->producer];
        return own;
    }
    if (v->input) {
        sn_vid own = sn_input(to, suffix ? sn_name(to, "%s.%s", v->name, suffix) : v->name, v->dtype, v->shape);
        if (own != SN_NONE) to->values[own].result = v->result;
        return own;
    }
    if (SN_GROW(to->values, to->n_values, to->cap_values) != SN_OK) return SN_NONE;
    to->values[to->n_values] = *v;
    to->values[to->n_values].producer = node_of[v->producer];
    return (sn_vid)to->n_values++;
}

static sn_status stamp_nodes(sn_graph *to, const sn_graph *from, const sn_nid *node_of, const sn_vid *value_of) {
    for (size_t k = 0; k < from->n_order; k++) {
        sn_node n = from->nodes[from->order[k]];
        for (int i = 0; i < n.n_in; i++)
            if (n.in[i].value != SN_NONE) n.in[i].value = value_of[n.in[i].value];
        for (int i = 0; i < n.n_out; i++)
            if (n.out[i] != SN_NONE) n.out[i] = value_of[n.out[i]];
        if (n.origin != SN_NONE) n.origin = node_of[n.origin];
        if (n.after != SN_NONE) n.after = node_of[n.after];
        if (n.held != SN_NONE) n.held = node_of[n.held];
        if (SN_GROW(to->nodes, to->n_nodes, to->cap_nodes) != SN_OK || SN_GROW(to->order, to->n_order, to->cap_order) != SN_OK)
            return sn_fail(SN_ERR_NO_MEMORY, "cannot append %s to %s", from->name, to->name);
        to->order[to->n_order++] = (sn_nid)to->n_nodes;
        to->nodes[to->n_nodes++] = n;
    }
    return SN_OK;
}

sn_status sn_graph_stamp(sn_graph *to, const sn_graph *from, const char *suffix) {
    sn_nid *node_of = sn_alloc(from->n_nodes * sizeof *node_of + 1);
    sn_vid *value_of = sn_alloc(from->n_values * sizeof *value_of + 1);
    sn_status s = node_of && value_of ? to->status : sn_fail(SN_ERR_NO_MEMORY, "cannot append %s to %s", from->name, to->name);
    for (size_t n = 0; s == SN_OK && n < from->n_nodes; n++) node_of[n] = SN_NONE;
    for (size_t k = 0; s == SN_OK && k < from->n_order; k++) node_of[from->order[k]] = (sn_nid)(to->n_nodes + k);
    for (size_t v = 0; s == SN_OK && v < from->n_values; v++) {
        const sn_value *x = &from->values[v];
        bool gone = x->producer != SN_NONE && x->persistent == SN_NONE && node_of[x->producer] == SN_NONE;
        value_of[v] = gone ? SN_NONE : stamp_value(to, x, suffix, node_of);
        if (!gone && value_of[v] == SN_NONE)
            s = to->status != SN_OK ? to->status : sn_fail(SN_ERR_NO_MEMORY, "cannot append %s to %s", from->name, to->name);
    }
    for (size_t v = 0; s == SN_OK && v < from->n_values; v++) {
        bool own = value_of[v] != SN_NONE && from->values[v].persistent == SN_NONE && from->values[v].run;
        if (own) to->values[value_of[v]].runs_of = value_of[from->values[v].runs_of];
    }
    if (s == SN_OK) s = stamp_nodes(to, from, node_of, value_of);
    sn_free(node_of);
    sn_free(value_of);
    return s;
}
