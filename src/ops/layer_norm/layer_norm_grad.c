#include "ops/layer_norm/layer_norm.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_rank("layer_norm_grad", c, 1, "x", 2));
    SN_TRY(sn_need_float("layer_norm_grad", c, 1, "x"));
    const sn_shape row = sn_shape_of(c->in[1].shape.d[1]), rows = sn_shape_of(c->in[1].shape.d[0]);
    SN_TRY(sn_need_shape("layer_norm_grad", c, 0, "dy", &c->in[1].shape));
    SN_TRY(sn_need_float("layer_norm_grad", c, 0, "dy"));
    SN_TRY(sn_need_shape("layer_norm_grad", c, 2, "w", &row));
    SN_TRY(sn_need_float("layer_norm_grad", c, 2, "w"));
    SN_TRY(sn_need_shape("layer_norm_grad", c, 3, "mean", &rows));
    SN_TRY(sn_need_form("layer_norm_grad", c, 3, "mean", SN_F32));
    SN_TRY(sn_need_shape("layer_norm_grad", c, 4, "rstd", &rows));
    SN_TRY(sn_need_form("layer_norm_grad", c, 4, "rstd", SN_F32));
    sn_set_out(c, 0, c->in[1].dtype, c->in[1].shape);
    for (int o = 1; o <= 2; o++)
        if (c->attrs.i[o == 1 ? SN_LAYER_NORM_GRAD_WANT_DW : SN_LAYER_NORM_GRAD_WANT_DB]) sn_set_out(c, o, SN_F32, row);
        else sn_set_no_out(c, o);
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tE,tE,E,t,t->tE,E,E";
}
static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input >= 3 ? form == SN_F32 : sn_dtype_is_float(form);
}
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 14, 0); }

const sn_op sn_op_layer_norm_grad = {.name = "layer_norm_grad",
                                     .min_in = 5,
                                     .max_in = 5,
                                     .n_out = 3,
                                     .int_attrs = {"want_dw", "want_db"},
                                     .shape = shape,
                                     .axes = axes,
                                     .accepts = accepts,
                                     .cost = cost,
                                     .alias = {1u << 0 | 1u << 1},
                                     .kernels = {sn_layer_norm_grad_avx512, sn_layer_norm_grad_avx2, sn_layer_norm_grad_cpu}};
