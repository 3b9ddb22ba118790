#include "ops/rope_table/rope_table.h"

#include "graph/op.h"

static sn_status check_scaling(const sn_attrs *a) {
    int64_t type = a->i[SN_ROPE_TABLE_TYPE];
    if (type < SN_ROPE_TABLE_DEFAULT || type > SN_ROPE_TABLE_LLAMA3)
        return sn_fail(SN_ERR_UNSUPPORTED, "rope_table: wanted type 0 (default), 1 (linear) or 2 (llama3), found %lld", (long long)type);
    if (type == SN_ROPE_TABLE_DEFAULT) return SN_OK;
    if (!(a->f[SN_ROPE_TABLE_FACTOR] > 0))
        return sn_fail(SN_ERR_SHAPE, "rope_table: wanted a scaling factor above 0, found %g", a->f[SN_ROPE_TABLE_FACTOR]);
    if (type == SN_ROPE_TABLE_LINEAR) return SN_OK;
    double low = a->f[SN_ROPE_TABLE_LOW_FREQ_FACTOR], high = a->f[SN_ROPE_TABLE_HIGH_FREQ_FACTOR];
    if (!(low > 0) || !(high > low))
        return sn_fail(SN_ERR_SHAPE, "rope_table: wanted 0 < low_freq_factor < high_freq_factor, found %g and %g", low, high);
    if (a->i[SN_ROPE_TABLE_ORIGINAL_CONTEXT] < 1)
        return sn_fail(SN_ERR_SHAPE, "rope_table: wanted original_context of at least 1, found %lld",
                       (long long)a->i[SN_ROPE_TABLE_ORIGINAL_CONTEXT]);
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    const sn_tensor *positions = &c->in[0];
    char found[96];
    if (positions->dtype != SN_I32 || positions->shape.rank != 1)
        return sn_fail(SN_ERR_SHAPE, "rope_table: wanted positions i32 [T], found %s %s", sn_dtype_name(positions->dtype),
                       sn_shape_text(&positions->shape, found));
    int64_t dims = c->attrs.i[SN_ROPE_TABLE_DIMS];
    if (dims < 2 || dims % 2) return sn_fail(SN_ERR_SHAPE, "rope_table: wanted an even number of dims, found %lld", (long long)dims);
    if (!(c->attrs.f[SN_ROPE_TABLE_THETA] > 0))
        return sn_fail(SN_ERR_SHAPE, "rope_table: wanted theta above 0, found %g", c->attrs.f[SN_ROPE_TABLE_THETA]);
    SN_TRY(check_scaling(&c->attrs));
    c->out[0].dtype = SN_F32;
    c->out[0].shape = sn_shape_of(positions->shape.d[0], dims);
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "t->tR";
}

static sn_cost cost(const sn_call *c) { /* a cosine and a sine: about 40 operations a pair */
    double n = (double)c->in[0].shape.d[0], r = (double)c->attrs.i[SN_ROPE_TABLE_DIMS];
    return (sn_cost){.flops = 20 * n * r, .bytes = 4 * n * (r + 1)};
}

const sn_op sn_op_rope_table = {
    .name = "rope_table",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .int_attrs = {"dims", "type", "original_context"},
    .float_attrs = {"theta", "factor", "low_freq_factor", "high_freq_factor"},
    .shape = shape,
    .axes = axes,
    .cost = cost,
    .kernels = {sn_rope_table_cpu},
};
