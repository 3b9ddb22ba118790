#include "ops/rms_norm/rms_norm.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_rank("rms_norm_grad", c, 1, "x", 2));
    SN_TRY(sn_need_float("rms_norm_grad", c, 1, "x"));
    const sn_shape row = sn_shape_of(c->in[1].shape.d[1]), rows = sn_shape_of(c->in[1].shape.d[0]);
    SN_TRY(sn_need_shape("rms_norm_grad", c, 0, "dy", &c->in[1].shape));
    SN_TRY(sn_need_float("rms_norm_grad", c, 0, "dy"));
    SN_TRY(sn_need_shape("rms_norm_grad", c, 2, "w", &row));
    SN_TRY(sn_need_float("rms_norm_grad", c, 2, "w"));
    SN_TRY(sn_need_shape("rms_norm_grad", c, 3, "rstd", &rows));
    SN_TRY(sn_need_form("rms_norm_grad", c, 3, "rstd", SN_F32));
    sn_set_out(c, 0, c->in[1].dtype, c->in[1].shape);
    if (c->attrs.i[SN_RMS_NORM_GRAD_WANT_DW]) sn_set_out(c, 1, SN_F32, row);
    else sn_set_no_out(c, 1);
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tE,tE,E,t->tE,E";
}
static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == 3 ? form == SN_F32 : sn_dtype_is_float(form);
}
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 10, 0); }

const sn_op sn_op_rms_norm_grad = {.name = "rms_norm_grad",
                                   .min_in = 4,
                                   .max_in = 4,
                                   .n_out = 2,
                                   .int_attrs = {"want_dw"},
                                   .shape = shape,
                                   .axes = axes,
                                   .accepts = accepts,
                                   .cost = cost,
                                   .alias = {1u << 0 | 1u << 1},
                                   .kernels = {sn_rms_norm_grad_avx512, sn_rms_norm_grad_avx2, sn_rms_norm_grad_cpu}};
