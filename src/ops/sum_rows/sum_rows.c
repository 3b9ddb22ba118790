#include "ops/sum_rows/sum_rows.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    sn_dtype form;
    SN_TRY(sn_need_rank("sum_rows", c, 0, "dy", 2));
    SN_TRY(sn_need_float("sum_rows", c, 0, "dy"));
    SN_TRY(sn_need_float_attr("sum_rows", "dtype", c->attrs.i[SN_SUM_ROWS_DTYPE], &form));
    sn_set_out(c, 0, form, sn_shape_of(c->in[0].shape.d[1]));
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tn->n";
}
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 1, 0); }

const sn_op sn_op_sum_rows = {.name = "sum_rows",
                              .min_in = 1,
                              .max_in = 1,
                              .n_out = 1,
                              .int_attrs = {"dtype"},
                              .shape = shape,
                              .axes = axes,
                              .accepts = sn_accepts_float,
                              .cost = cost,
                              .kernels = {sn_sum_rows_avx512, sn_sum_rows_avx2, sn_sum_rows_cpu}};
