#include "ops/paged_attention/paged_attention.h"

#include "graph/op.h"

static sn_status check_attrs(const sn_attrs *a) {
    int64_t head_dim = a->i[SN_PAGED_ATTENTION_HEAD_DIM], window = a->i[SN_PAGED_ATTENTION_WINDOW];
    if (head_dim < 1) return sn_fail(SN_ERR_SHAPE, "paged_attention: wanted head_dim of at least 1, found %lld", (long long)head_dim);
    if (window < 0) return sn_fail(SN_ERR_SHAPE, "paged_attention: wanted a window of at least 0, found %lld", (long long)window);
    if (!(a->f[SN_PAGED_ATTENTION_SCALE] > 0))
        return sn_fail(SN_ERR_SHAPE, "paged_attention: wanted a scale above 0, found %g", a->f[SN_PAGED_ATTENTION_SCALE]);
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    SN_TRY(check_attrs(&c->attrs));
    const sn_tensor *q = &c->in[0], *cache = &c->in[1], *table = &c->in[2];
    int64_t head_dim = c->attrs.i[SN_PAGED_ATTENTION_HEAD_DIM];
    char a[96];
    if (!sn_dtype_is_float(cache->dtype) || cache->shape.rank != 5 || cache->shape.d[1] != 2 || cache->shape.d[2] < 1 ||
        cache->shape.d[3] < 1 || cache->shape.d[4] != head_dim)
        return sn_fail(SN_ERR_SHAPE, "paged_attention: wanted cache f32, bf16 or f16 [B,2,G,S,%lld], found %s %s", (long long)head_dim,
                       sn_dtype_name(cache->dtype), sn_shape_text(&cache->shape, a));
    if (!sn_dtype_is_float(q->dtype) || q->shape.rank != 2 || q->shape.d[1] < 1 || q->shape.d[1] % (cache->shape.d[2] * head_dim))
        return sn_fail(SN_ERR_SHAPE, "paged_attention: wanted q f32, bf16 or f16 [T, a multiple of %lld heads * %lld], found %s %s",
                       (long long)cache->shape.d[2], (long long)head_dim, sn_dtype_name(q->dtype), sn_shape_text(&q->shape, a));
    if (table->dtype != SN_I32 || table->shape.rank != 2)
        return sn_fail(SN_ERR_SHAPE, "paged_attention: wanted block_table i32 [N,M], found %s %s", sn_dtype_name(table->dtype),
                       sn_shape_text(&table->shape, a));
    for (int i = 3; i < 5; i++)
        if (c->in[i].dtype != SN_I32 || c->in[i].shape.rank != 1 || c->in[i].shape.d[0] != q->shape.d[0])
            return sn_fail(SN_ERR_SHAPE, "paged_attention: wanted %s i32 [%lld], found %s %s", i == 3 ? "sequence" : "positions",
                           (long long)q->shape.d[0], sn_dtype_name(c->in[i].dtype), sn_shape_text(&c->in[i].shape, a));
    c->out[0].dtype = q->dtype;
    c->out[0].shape = q->shape;
    return SN_OK;
}

static const char *axes(const sn_call *c) { /* h: heads; the cache is split by key/value heads as q is by heads */
    (void)c;
    return "th,BKhSD,NM,t,t->th";
}

static sn_cost cost(const sn_call *c) { /* as if every block of the table held keys: positions are not known yet */
    const sn_tensor *q = &c->in[0], *cache = &c->in[1], *table = &c->in[2];
    double keys = (double)(table->shape.d[1] * cache->shape.d[3]), window = (double)c->attrs.i[SN_PAGED_ATTENTION_WINDOW];
    if (window > 0 && window < keys) keys = window;
    double row = (double)(2 * cache->shape.d[2] * cache->shape.d[4] * sn_dtypes[cache->dtype].bytes);
    return (sn_cost){.flops = 4 * keys * (double)sn_elements(q),
                     .bytes = 2 * (double)sn_tensor_bytes(q) + (double)table->shape.d[0] * keys * row};
}

const sn_op sn_op_paged_attention = {
    .name = "paged_attention",
    .min_in = 5,
    .max_in = 5,
    .n_out = 1,
    .int_attrs = {"head_dim", "window"},
    .float_attrs = {"scale"},
    .shape = shape,
    .axes = axes,
    .cost = cost,
    .kernels = {sn_paged_attention_avx512, sn_paged_attention_avx2, sn_paged_attention_cpu},
};
