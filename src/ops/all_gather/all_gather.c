#include "ops/all_gather/all_gather.h"

#include "graph/split.h"
#include "ops/rules.h"

/* A graph's shapes are logical, so the result has the shape of x; what differs is the split: a shard of the flattened tensor becomes whole.
 */
static sn_status shape(sn_call *c) {
    const int64_t axis = c->attrs.i[SN_ALL_GATHER_AXIS], unit = c->attrs.i[SN_ALL_GATHER_UNIT], n = c->attrs.i[SN_ALL_GATHER_N];
    char text[96];
    SN_TRY(sn_need_any("all_gather", c, 0, "x"));
    if (axis < 0 || axis >= SN_MESH_AXES) return sn_fail(SN_ERR_SHAPE, "all_gather: no mesh axis %lld", (long long)axis);
    if (unit < 1) return sn_fail(SN_ERR_SHAPE, "all_gather: unit must be 1 or more, found %lld", (long long)unit);
    if (unit % sn_dtypes[c->in[0].dtype].block)
        return sn_fail(SN_ERR_SHAPE, "all_gather: unit must be a multiple of the block of %s, %d, found %lld",
                       sn_dtype_name(c->in[0].dtype), sn_dtypes[c->in[0].dtype].block, (long long)unit);
    if (sn_elements(&c->in[0]) != n)
        return sn_fail(SN_ERR_SHAPE, "all_gather: x must have %lld elements, found %s", (long long)n, sn_shape_text(&c->in[0].shape, text));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)input;
    return c->attrs.i[SN_ALL_GATHER_UNIT] % sn_dtypes[form].block == 0;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 0, 0); }

const sn_op sn_op_all_gather = {.name = "all_gather",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .int_attrs = {"axis", "unit", "n"},
                                .shape = shape,
                                .accepts = accepts,
                                .cost = cost,
                                .kernels = {sn_all_gather_cpu}};
