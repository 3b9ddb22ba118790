#include "ops/accumulate/accumulate.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("accumulate", c, 0, "acc"));
    SN_TRY(sn_need_float("accumulate", c, 0, "acc"));
    SN_TRY(sn_need_shape("accumulate", c, 1, "x", &c->in[0].shape));
    return sn_need_float("accumulate", c, 1, "x");
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 2, 0); }
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 1, 1u << 0); }

const sn_op sn_op_accumulate = {.name = "accumulate",
                                .min_in = 2,
                                .max_in = 2,
                                .n_out = 0,
                                .linear = 1u << 0 | 1u << 1,
                                .mutates = 1u << 0,
                                .shape = shape,
                                .axes = axes,
                                .accepts = sn_accepts_float,
                                .cost = cost,
                                .kernels = {sn_accumulate_avx512, sn_accumulate_avx2, sn_accumulate_cpu}};
