#include "ops/layer_norm/layer_norm.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_rank("layer_norm", c, 0, "x", 2));
    SN_TRY(sn_need_float("layer_norm", c, 0, "x"));
    const sn_shape row = sn_shape_of(c->in[0].shape.d[1]), rows = sn_shape_of(c->in[0].shape.d[0]);
    SN_TRY(sn_need_shape("layer_norm", c, 1, "w", &row));
    SN_TRY(sn_need_float("layer_norm", c, 1, "w"));
    if (sn_has(c, 2)) {
        SN_TRY(sn_need_shape("layer_norm", c, 2, "b", &row));
        SN_TRY(sn_need_float("layer_norm", c, 2, "b"));
    }
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    sn_set_out(c, 1, SN_F32, rows);
    sn_set_out(c, 2, SN_F32, rows);
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tE,E,E->tE,t,t";
}

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    if (dout[1] != SN_NONE || dout[2] != SN_NONE)
        return sn_fail(SN_ERR_UNSUPPORTED, "layer_norm: no gradient through mean and rstd (%s)", n.name);
    const bool want_db = sn_in(&n, 2) != SN_NONE && want[2];
    if (!want[0] && !want[1] && !want_db) return SN_OK;
    const sn_vid in[] = {dout[0], sn_in(&n, 0), sn_in(&n, 1), n.out[1], n.out[2]};
    const sn_attrs attrs = {.i = {[SN_LAYER_NORM_GRAD_WANT_DW] = want[1], [SN_LAYER_NORM_GRAD_WANT_DB] = want_db}};
    sn_vid out[SN_MAX_OUT];
    sn_append(g, SN_OP_layer_norm_grad, &attrs, 5, in, sn_name(g, "%s.grad", n.name), out);
    if (want[0]) din[0] = out[0];
    if (want[1]) din[1] = out[1];
    if (want_db) din[2] = out[2];
    return g->status;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 8, 0); }

const sn_op sn_op_layer_norm = {.name = "layer_norm",
                                .min_in = 2,
                                .max_in = 3,
                                .n_out = 3,
                                .light = true,
                                .float_attrs = {"eps"},
                                .shape = shape,
                                .axes = axes,
                                .accepts = sn_accepts_float,
                                .grad = grad,
                                .cost = cost,
                                .alias = {1u << 0},
                                .kernels = {sn_layer_norm_avx512, sn_layer_norm_avx2, sn_layer_norm_cpu}};
