#include "ops/adamw/adamw.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_state("adamw", c, 0, "w"));
    SN_TRY(sn_need_state("adamw", c, 2, "m"));
    SN_TRY(sn_need_state("adamw", c, 3, "v"));
    return sn_need_update("adamw", c, 4);
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return sn_accepts_update(input, form, 4);
}
static const char *axes(const sn_call *c) { return sn_axes_update(c, 2); }
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 16, 1u << 0 | 1u << 2 | 1u << 3); }

const sn_op sn_op_adamw = {.name = "adamw",
                           .min_in = 6,
                           .max_in = 7,
                           .n_out = 0,
                           .mutates = 1u << 0 | 1u << 2 | 1u << 3 | 1u << 6,
                           .tile = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 6,
                           .int_attrs = {"parameter", "first"},
                           .flat_first = 1 + SN_ADAMW_FIRST,
                           .float_attrs = {"beta1", "beta2", "eps", "weight_decay"},
                           .shape = shape,
                           .axes = axes,
                           .accepts = accepts,
                           .cost = cost,
                           .kernels = {sn_adamw_avx512, sn_adamw_avx2, sn_adamw_cpu}};
