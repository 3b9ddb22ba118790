#include "ops/rms_norm/rms_norm.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_rank("rms_norm", c, 0, "x", 2));
    SN_TRY(sn_need_float("rms_norm", c, 0, "x"));
    const sn_shape row = sn_shape_of(c->in[0].shape.d[1]);
    SN_TRY(sn_need_shape("rms_norm", c, 1, "w", &row));
    SN_TRY(sn_need_float("rms_norm", c, 1, "w"));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    sn_set_out(c, 1, SN_F32, sn_shape_of(c->in[0].shape.d[0]));
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tE,E->tE,t";
}

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    if (dout[1] != SN_NONE) return sn_fail(SN_ERR_UNSUPPORTED, "rms_norm: no gradient through rstd (%s)", n.name);
    if (!want[0] && !want[1]) return SN_OK;
    const sn_vid in[] = {dout[0], sn_in(&n, 0), sn_in(&n, 1), n.out[1]};
    sn_vid out[SN_MAX_OUT];
    sn_append(g, SN_OP_rms_norm_grad, &(sn_attrs){.i = {[SN_RMS_NORM_GRAD_WANT_DW] = want[1]}}, 4, in, sn_name(g, "%s.grad", n.name), out);
    if (want[0]) din[0] = out[0];
    if (want[1]) din[1] = out[1];
    return g->status;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 4, 0); }

const sn_op sn_op_rms_norm = {.name = "rms_norm",
                              .min_in = 2,
                              .max_in = 2,
                              .n_out = 2,
                              .light = true,
                              .float_attrs = {"eps"},
                              .shape = shape,
                              .axes = axes,
                              .accepts = sn_accepts_float,
                              .grad = grad,
                              .cost = cost,
                              .alias = {1u << 0},
                              .kernels = {sn_rms_norm_avx512, sn_rms_norm_avx2, sn_rms_norm_cpu}};
