#include "ops/all_gather/all_gather.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t *i = c->attrs.i, unit = i[SN_ALL_GATHER_UNIT];
    SN_TRY(sn_need_any("all_gather", c, 0, "x"));
    const sn_tensor *x = &c->in[0];
    SN_TRY(sn_need_mesh_axis("all_gather", i[SN_ALL_GATHER_AXIS]));
    if (unit < 1 || (!i[SN_ALL_GATHER_ROWS] && unit % sn_dtypes[x->dtype].block))
        return sn_fail(SN_ERR_SHAPE, "all_gather: unit must be a multiple of %d, the block of %s, found %lld", sn_dtypes[x->dtype].block,
                       sn_dtype_name(x->dtype), (long long)unit);
    sn_set_no_out(c, 0);
    if (!sn_has(c, 1)) {
        sn_set_out(c, 0, x->dtype, x->shape);
        return SN_OK;
    }
    SN_TRY(sn_need_form("all_gather", c, 1, "into", x->dtype));
    return sn_need_shape("all_gather", c, 1, "into", &x->shape);
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)input;
    return c->attrs.i[SN_ALL_GATHER_ROWS] || c->attrs.i[SN_ALL_GATHER_UNIT] % sn_dtypes[form].block == 0;
}

/* The shards of all ranks are read. */
static sn_cost cost(const sn_call *c) { return (sn_cost){.bytes = 2 * (double)sn_tensor_bytes(sn_has(c, 1) ? &c->in[1] : &c->out[0])}; }

const sn_op sn_op_all_gather = {.name = "all_gather",
                                .min_in = 1,
                                .max_in = 2,
                                .n_out = 1,
                                .mutates = 1u << 1,
                                .int_attrs = {"axis", "unit", "rows"},
                                .comm_axis = 1 + SN_ALL_GATHER_AXIS,
                                .shape = shape,
                                .accepts = accepts,
                                .cost = cost,
                                .kernels = {sn_all_gather_cpu}};
