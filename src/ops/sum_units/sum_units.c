#include "ops/sum_units/sum_units.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t slot = c->attrs.i[SN_SUM_UNITS_SLOT];
    SN_TRY(sn_need_rank("sum_units", c, 0, "units", 1));
    SN_TRY(sn_need_form("sum_units", c, 0, "units", SN_F64));
    if (!sn_has(c, 1)) {
        sn_set_out(c, 0, SN_F64, sn_shape_of(1));
        return SN_OK;
    }
    SN_TRY(sn_need_rank("sum_units", c, 1, "norms", 1));
    SN_TRY(sn_need_form("sum_units", c, 1, "norms", SN_F64));
    if (slot < 0 || slot >= c->in[1].shape.d[0])
        return sn_fail(SN_ERR_SHAPE, "sum_units: slot must be below %lld, found %lld", (long long)c->in[1].shape.d[0], (long long)slot);
    return SN_OK;
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    (void)input;
    return form == SN_F64;
}

const sn_op sn_op_sum_units = {.name = "sum_units",
                               .min_in = 1,
                               .max_in = 2,
                               .n_out = 1,
                               .mutates = 1u << 1,
                               .linear = 1u << 0 | 1u << 1,
                               .added_once = 1u << 0,
                               .int_attrs = {"slot"},
                               .shape = shape,
                               .accepts = accepts,
                               .kernels = {sn_sum_units_cpu}};
