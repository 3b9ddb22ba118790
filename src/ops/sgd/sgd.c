#include "ops/sgd/sgd.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_state("sgd", c, 0, "w"));
    if (sn_has(c, 2)) SN_TRY(sn_need_state("sgd", c, 2, "momentum"));
    else if (c->attrs.f[SN_SGD_MOMENTUM] != 0)
        return sn_fail(SN_ERR_SHAPE, "sgd: momentum %g needs its state as input 2", c->attrs.f[SN_SGD_MOMENTUM]);
    return sn_need_update("sgd", c, 3);
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return sn_accepts_update(input, form, 3);
}
static const char *axes(const sn_call *c) { return sn_axes_update(c, 1); }
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 6, 1u << 0 | 1u << 2); }

/* min_in stops before momentum, which may be absent; the shape rule asks for hyper and clip. */
const sn_op sn_op_sgd = {.name = "sgd",
                         .min_in = 2,
                         .max_in = 6,
                         .n_out = 0,
                         .mutates = 1u << 0 | 1u << 2 | 1u << 5,
                         .tile = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 5,
                         .int_attrs = {"parameter", "first"},
                         .flat_first = 1 + SN_SGD_FIRST,
                         .float_attrs = {"momentum", "weight_decay"},
                         .shape = shape,
                         .axes = axes,
                         .accepts = accepts,
                         .cost = cost,
                         .kernels = {sn_sgd_avx512, sn_sgd_avx2, sn_sgd_cpu}};
