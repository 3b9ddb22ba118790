/* The text form of a graph: one line a node, stable from run to run, so that two stages diff. */
#include <string.h>

#include "base/str.h"
#include "graph/graph.h"
#include "graph/op.h"

static void print_split(const sn_split *s, sn_str *out) {
    static const char *const axes[SN_MESH_AXES] = {[SN_MESH_PP] = "pp", [SN_MESH_REPLICA] = "replica", [SN_MESH_DP] = "dp",
                                                   [SN_MESH_CP] = "cp", [SN_MESH_TP] = "tp",           [SN_MESH_EP] = "ep"};
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &s->axis[a];
        if (x->kind == SN_SHARD && x->dim == SN_SPLIT_FLAT) sn_str_printf(out, " shard(%s, unit %d)", axes[a], x->unit);
        else if (x->kind == SN_SHARD)
            sn_str_printf(out, " shard(%s, dim %d%s)", axes[a], x->dim,
                          x->at == SN_DEAL_FOLDED   ? ", folded"
                          : x->at == SN_DEAL_THIRDS ? ", thirds"
                                                    : "");
        else if (x->kind == SN_PARTIAL) sn_str_printf(out, " partial(%s)", axes[a]);
        else if (x->kind == SN_AT) sn_str_printf(out, " at(%s=%d)", axes[a], x->at);
    }
}

static void print_value(const sn_graph *g, sn_vid id, sn_str *out) {
    const sn_value *v = &g->values[id];
    if (v->persistent != SN_NONE) sn_str_printf(out, "@%s", v->name);
    else if (v->input) sn_str_printf(out, "$%s", v->name);
    else sn_str_printf(out, "%%%u", id);
}

void sn_graph_print(const sn_graph *g, sn_str *out) {
    char shape[96];
    sn_str_printf(out, "program %s\n", g->name);
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        const sn_op *op = sn_ops[n->op];
        sn_str_add(out, "  ");
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != SN_NONE) {
                print_value(g, n->out[i], out);
                sn_str_char(out, ' ');
            }
        sn_str_printf(out, "= %s", op->name);
        for (int i = 0; i < n->n_in; i++) {
            sn_str_char(out, ' ');
            if (n->in[i].value == SN_NONE) sn_str_char(out, '-');
            else print_value(g, n->in[i].value, out);
            if (n->in[i].slice_n)
                sn_str_printf(out, "[%lld:%lld]", (long long)n->in[i].slice_at, (long long)(n->in[i].slice_at + n->in[i].slice_n));
            if (n->in[i].form < SN_DTYPE_COUNT) sn_str_printf(out, ":%s", sn_dtype_name((sn_dtype)n->in[i].form));
        }
        for (int i = 0; i < SN_ATTR_INTS; i++)
            if (op->int_attrs[i] && n->attrs.i[i]) sn_str_printf(out, " %s=%lld", op->int_attrs[i], (long long)n->attrs.i[i]);
        for (int i = 0; i < SN_ATTR_FLOATS; i++)
            if (op->float_attrs[i] && n->attrs.f[i] != 0) sn_str_printf(out, " %s=%g", op->float_attrs[i], n->attrs.f[i]);
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != SN_NONE) {
                const sn_value *v = &g->values[n->out[i]];
                sn_str_printf(out, "  %s%s", sn_dtype_name(v->dtype), sn_shape_text(&v->shape, shape));
                print_split(&v->result, out);
            }
        sn_str_printf(out, "  # %s (%s)\n", n->name, n->made_by);
    }
}
