#include "ops/sum_squares/sum_squares.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("sum_squares", c, 0, "g"));
    SN_TRY(sn_need_float("sum_squares", c, 0, "g"));
    const int64_t n = sn_elements(&c->in[0]);
    sn_set_out(c, 0, SN_F64, sn_shape_of(n / SN_SUM_SQUARES_UNIT + (n % SN_SUM_SQUARES_UNIT != 0)));
    return SN_OK;
}

static sn_cost cost(const sn_call *c) {
    return (sn_cost){.flops = 2 * (double)sn_elements(&c->in[0]), .bytes = (double)sn_tensor_bytes(&c->in[0])};
}

const sn_op sn_op_sum_squares = {.name = "sum_squares",
                                 .min_in = 1,
                                 .max_in = 1,
                                 .n_out = 1,
                                 .flat_run = SN_SUM_SQUARES_UNIT,
                                 .shape = shape,
                                 .accepts = sn_accepts_float,
                                 .cost = cost,
                                 .kernels = {sn_sum_squares_avx512, sn_sum_squares_avx2, sn_sum_squares_cpu}};
