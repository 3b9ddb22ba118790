#include "ops/sum_squares/sum_squares.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t slot = c->attrs.i[SN_SUM_SQUARES_SLOT];
    SN_TRY(sn_need_rank("sum_squares", c, 0, "norms", 1));
    SN_TRY(sn_need_form("sum_squares", c, 0, "norms", SN_F64));
    SN_TRY(sn_need_any("sum_squares", c, 1, "g"));
    SN_TRY(sn_need_float("sum_squares", c, 1, "g"));
    if (slot < 0 || slot >= c->in[0].shape.d[0])
        return sn_fail(SN_ERR_SHAPE, "sum_squares: slot must be below %lld, found %lld", (long long)c->in[0].shape.d[0], (long long)slot);
    return SN_OK;
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == 0 ? form == SN_F64 : sn_dtype_is_float(form);
}
static sn_cost cost(const sn_call *c) {
    return (sn_cost){.flops = 2 * (double)sn_elements(&c->in[1]), .bytes = (double)sn_tensor_bytes(&c->in[1])};
}

const sn_op sn_op_sum_squares = {.name = "sum_squares",
                                 .min_in = 2,
                                 .max_in = 2,
                                 .n_out = 0,
                                 .mutates = 1u << 0,
                                 .int_attrs = {"slot"},
                                 .shape = shape,
                                 .accepts = accepts,
                                 .cost = cost,
                                 .kernels = {sn_sum_squares_avx512, sn_sum_squares_avx2, sn_sum_squares_cpu}};
