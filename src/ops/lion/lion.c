#include "ops/lion/lion.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_update("lion", c, 3));
    return sn_need_state("lion", c, 2, "m");
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return sn_accepts_update(input, form, 3);
}
static const char *axes(const sn_call *c) { return sn_axes_update(c, 1); }
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 10, 1u << 0 | 1u << 2); }

const sn_op sn_op_lion = {.name = "lion",
                          .min_in = 5,
                          .max_in = 6,
                          .n_out = 0,
                          .mutates = 1u << 0 | 1u << 2 | 1u << 5,
                          .tile = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 5,
                          .int_attrs = {"parameter", "first"},
                          .flat_first = 1 + SN_LION_FIRST,
                          .float_attrs = {"beta1", "beta2", "weight_decay"},
                          .shape = shape,
                          .axes = axes,
                          .accepts = accepts,
                          .cost = cost,
                          .kernels = {sn_lion_avx512, sn_lion_avx2, sn_lion_cpu}};
