#include "ops/kv_write/kv_write.h"

#include "graph/op.h"

static sn_status shape(sn_call *c) {
    const sn_tensor *cache = &c->in[0], *slots = &c->in[3];
    int64_t head_dim = c->attrs.i[SN_KV_WRITE_HEAD_DIM];
    char a[96], b[96];
    if (!sn_dtype_is_float(cache->dtype) || cache->shape.rank != 5 || cache->shape.d[1] != 2 || cache->shape.d[4] != head_dim)
        return sn_fail(SN_ERR_SHAPE, "kv_write: wanted cache f32, bf16 or f16 [B,2,G,S,%lld], found %s %s", (long long)head_dim,
                       sn_dtype_name(cache->dtype), sn_shape_text(&cache->shape, a));
    if (slots->dtype != SN_I32 || slots->shape.rank != 1)
        return sn_fail(SN_ERR_SHAPE, "kv_write: wanted slots i32 [T], found %s %s", sn_dtype_name(slots->dtype),
                       sn_shape_text(&slots->shape, a));
    sn_shape wanted = sn_shape_of(slots->shape.d[0], cache->shape.d[2] * head_dim);
    for (int i = 1; i <= 2; i++)
        if (!sn_dtype_is_float(c->in[i].dtype) || !sn_shape_equal(&c->in[i].shape, &wanted))
            return sn_fail(SN_ERR_SHAPE, "kv_write: wanted %s f32, bf16 or f16 %s, found %s %s", i == 1 ? "k" : "v",
                           sn_shape_text(&wanted, a), sn_dtype_name(c->in[i].dtype), sn_shape_text(&c->in[i].shape, b));
    return SN_OK;
}

static const char *axes(const sn_call *c) { /* h: kv heads, of the cache and of k and v alike */
    (void)c;
    return "BKhSD,Th,Th,T->";
}

static sn_cost cost(const sn_call *c) {
    double written = 2 * (double)sn_elements(&c->in[1]) * sn_dtypes[c->in[0].dtype].bytes;
    return (sn_cost){.bytes = written + (double)sn_tensor_bytes(&c->in[1]) + (double)sn_tensor_bytes(&c->in[2])};
}

const sn_op sn_op_kv_write = {
    .name = "kv_write",
    .min_in = 4,
    .max_in = 4,
    .n_out = 0,
    .mutates = 1u << 0,
    .int_attrs = {"head_dim"},
    .shape = shape,
    .axes = axes,
    .cost = cost,
    .kernels = {sn_kv_write_avx512, sn_kv_write_avx2, sn_kv_write_cpu},
};
