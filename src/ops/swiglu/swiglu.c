#include "ops/swiglu/swiglu.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("swiglu", c, 0, "gate"));
    SN_TRY(sn_need_float("swiglu", c, 0, "gate"));
    SN_TRY(sn_need_shape("swiglu", c, 1, "up", &c->in[0].shape));
    SN_TRY(sn_need_float("swiglu", c, 1, "up"));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 2, 1); }

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    if (!want[0] && !want[1]) return SN_OK;
    const sn_vid in[] = {dout[0], sn_in(&n, 0), sn_in(&n, 1)};
    sn_vid out[SN_MAX_OUT];
    sn_append(g, SN_OP_swiglu_grad, NULL, 3, in, sn_name(g, "%s.grad", n.name), out);
    for (int i = 0; i < 2; i++)
        if (want[i]) din[i] = out[i];
    return g->status;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 25, 0); }

const sn_op sn_op_swiglu = {.name = "swiglu",
                            .min_in = 2,
                            .max_in = 2,
                            .n_out = 1,
                            .light = true,
                            .shape = shape,
                            .axes = axes,
                            .accepts = sn_accepts_float,
                            .grad = grad,
                            .cost = cost,
                            .alias = {1u << 0 | 1u << 1},
                            .kernels = {sn_swiglu_avx512, sn_swiglu_avx2, sn_swiglu_cpu}};
