#include "ops/gelu/gelu.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("gelu_grad", c, 1, "x"));
    SN_TRY(sn_need_float("gelu_grad", c, 1, "x"));
    SN_TRY(sn_need_shape("gelu_grad", c, 0, "dy", &c->in[1].shape));
    SN_TRY(sn_need_float("gelu_grad", c, 0, "dy"));
    sn_set_out(c, 0, c->in[1].dtype, c->in[1].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[1].shape.rank, 2, 1); }
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 36, 0); }

const sn_op sn_op_gelu_grad = {.name = "gelu_grad",
                               .min_in = 2,
                               .max_in = 2,
                               .n_out = 1,
                               .int_attrs = {"exact"},
                               .shape = shape,
                               .axes = axes,
                               .accepts = sn_accepts_float,
                               .cost = cost,
                               .alias = {1u << 0 | 1u << 1},
                               .kernels = {sn_gelu_grad_avx512, sn_gelu_grad_avx2, sn_gelu_grad_cpu}};
