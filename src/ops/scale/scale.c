#include "ops/scale/scale.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("scale", c, 0, "a"));
    SN_TRY(sn_need_float("scale", c, 0, "a"));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 1, 1); }

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    if (want[0]) din[0] = sn_append1(g, SN_OP_scale, &n.attrs, 1, dout, sn_name(g, "%s.grad", n.name));
    return g->status;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 1, 0); }

const sn_op sn_op_scale = {.name = "scale",
                           .min_in = 1,
                           .max_in = 1,
                           .n_out = 1,
                           .float_attrs = {"alpha"},
                           .shape = shape,
                           .axes = axes,
                           .accepts = sn_accepts_float,
                           .grad = grad,
                           .cost = cost,
                           .linear = 1u << 0,
                           .alias = {1u << 0},
                           .kernels = {sn_scale_avx512, sn_scale_avx2, sn_scale_cpu}};
