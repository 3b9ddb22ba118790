#include "ops/gelu/gelu.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("gelu", c, 0, "x"));
    SN_TRY(sn_need_float("gelu", c, 0, "x"));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 1, 1); }

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    const sn_vid in[] = {dout[0], sn_in(&n, 0)};
    if (want[0]) din[0] = sn_append1(g, SN_OP_gelu_grad, &n.attrs, 2, in, sn_name(g, "%s.grad", n.name));
    return g->status;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 28, 0); }

const sn_op sn_op_gelu = {.name = "gelu",
                          .min_in = 1,
                          .max_in = 1,
                          .n_out = 1,
                          .light = true,
                          .int_attrs = {"exact"},
                          .shape = shape,
                          .axes = axes,
                          .accepts = sn_accepts_float,
                          .grad = grad,
                          .cost = cost,
                          .alias = {1u << 0},
                          .kernels = {sn_gelu_avx512, sn_gelu_avx2, sn_gelu_cpu}};
