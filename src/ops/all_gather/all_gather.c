#include "ops/all_gather/all_gather.h"

#include "graph/split.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t *i = c->attrs.i, axis = i[SN_ALL_GATHER_AXIS], unit = i[SN_ALL_GATHER_UNIT], n = i[SN_ALL_GATHER_ELEMENTS];
    const int64_t rows = i[SN_ALL_GATHER_ROWS];
    size_t bytes;
    SN_TRY(sn_need_rank("all_gather", c, 0, "x", 1));
    const sn_tensor *x = &c->in[0];
    if (axis < 0 || axis >= SN_MESH_AXES) return sn_fail(SN_ERR_SHAPE, "all_gather: no mesh axis %lld", (long long)axis);
    if (unit < 1 || unit % sn_dtypes[x->dtype].block)
        return sn_fail(SN_ERR_SHAPE, "all_gather: unit must be a multiple of %d, the block of %s, found %lld", sn_dtypes[x->dtype].block,
                       sn_dtype_name(x->dtype), (long long)unit);
    if (x->shape.d[0] % unit)
        return sn_fail(SN_ERR_SHAPE, "all_gather: a shard must be whole units of %lld elements, found %lld", (long long)unit,
                       (long long)x->shape.d[0]);
    if (n < 0 || rows < 0 || (rows && n % rows))
        return sn_fail(SN_ERR_SHAPE, "all_gather: %lld elements do not fill %lld rows", (long long)n, (long long)rows);
    const sn_shape whole = rows ? sn_shape_of(rows, n / rows) : sn_shape_of(n);
    if (!sn_shape_bytes(&whole, x->dtype, &bytes))
        return sn_fail(SN_ERR_SHAPE, "all_gather: %lld elements of %s in %lld rows have no valid size", (long long)n,
                       sn_dtype_name(x->dtype), (long long)rows);
    sn_set_out(c, 0, x->dtype, whole);
    return SN_OK;
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)input;
    return c->attrs.i[SN_ALL_GATHER_UNIT] % sn_dtypes[form].block == 0;
}

/* The shards of all ranks are read. */
static sn_cost cost(const sn_call *c) { return (sn_cost){.bytes = 2 * (double)sn_tensor_bytes(&c->out[0])}; }

const sn_op sn_op_all_gather = {.name = "all_gather",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .int_attrs = {"axis", "unit", "elements", "rows"},
                                .shape = shape,
                                .accepts = accepts,
                                .cost = cost,
                                .kernels = {sn_all_gather_cpu}};
