#include "ops/rules.h"
#include "ops/swiglu/swiglu.h"

static sn_status shape(sn_call *c) {
    static const char *const names[] = {"dy", "gate", "up"};
    SN_TRY(sn_need_any("swiglu_grad", c, 1, "gate"));
    for (int i = 0; i < 3; i++) {
        SN_TRY(sn_need_shape("swiglu_grad", c, i, names[i], &c->in[1].shape));
        SN_TRY(sn_need_float("swiglu_grad", c, i, names[i]));
    }
    sn_set_out(c, 0, c->in[1].dtype, c->in[1].shape);
    sn_set_out(c, 1, c->in[2].dtype, c->in[2].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[1].shape.rank, 3, 2); }
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 32, 0); }

const sn_op sn_op_swiglu_grad = {.name = "swiglu_grad",
                                 .min_in = 3,
                                 .max_in = 3,
                                 .n_out = 2,
                                 .shape = shape,
                                 .axes = axes,
                                 .accepts = sn_accepts_float,
                                 .cost = cost,
                                 .alias = {1u << 0 | 1u << 1 | 1u << 2, 1u << 0 | 1u << 1 | 1u << 2},
                                 .kernels = {sn_swiglu_grad_avx512, sn_swiglu_grad_avx2, sn_swiglu_grad_cpu}};
