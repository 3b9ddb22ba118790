#include "ops/rope/rope.h"

#include "graph/op.h"

static sn_status shape(sn_call *c) {
    const sn_tensor *x = &c->in[0], *table = &c->in[1];
    int64_t head_dim = c->attrs.i[SN_ROPE_HEAD_DIM];
    char a[96], b[96];
    if (!sn_dtype_is_float(x->dtype) || x->shape.rank != 2)
        return sn_fail(SN_ERR_SHAPE, "rope: wanted x f32, bf16 or f16 [T, H*D], found %s %s", sn_dtype_name(x->dtype),
                       sn_shape_text(&x->shape, a));
    if (head_dim < 1 || x->shape.d[1] % head_dim)
        return sn_fail(SN_ERR_SHAPE, "rope: wanted columns a multiple of head_dim %lld, found %lld", (long long)head_dim,
                       (long long)x->shape.d[1]);
    if (table->dtype != SN_F32 || table->shape.rank != 2 || table->shape.d[0] != x->shape.d[0] || table->shape.d[1] % 2 ||
        table->shape.d[1] > head_dim)
        return sn_fail(SN_ERR_SHAPE, "rope: wanted table f32 [%lld, even number up to %lld] for x %s, found %s %s",
                       (long long)x->shape.d[0], (long long)head_dim, sn_shape_text(&x->shape, a), sn_dtype_name(table->dtype),
                       sn_shape_text(&table->shape, b));
    c->out[0].dtype = x->dtype;
    c->out[0].shape = x->shape;
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "th,tR->th";
}

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    if (!want[0]) return SN_OK;
    sn_attrs attrs = g->nodes[node].attrs;
    attrs.i[SN_ROPE_INVERSE] = !attrs.i[SN_ROPE_INVERSE];
    sn_vid in[2] = {dout[0], g->nodes[node].in[1].value};
    din[0] = sn_append1(g, SN_OP_rope, &attrs, 2, in, g->nodes[node].name ? sn_name(g, "%s.grad", g->nodes[node].name) : NULL);
    return g->status;
}

static sn_cost cost(const sn_call *c) {
    double turned = (double)sn_elements(&c->in[0]) / (double)c->attrs.i[SN_ROPE_HEAD_DIM] * (double)sn_cols(&c->in[1]);
    return (sn_cost){.flops = 3 * turned, .bytes = 2 * (double)sn_tensor_bytes(&c->in[0]) + (double)sn_tensor_bytes(&c->in[1])};
}

const sn_op sn_op_rope = {
    .name = "rope",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .int_attrs = {"head_dim", "inverse"},
    .shape = shape,
    .axes = axes,
    .grad = grad,
    .cost = cost,
    .alias = {1u << 0},
    .kernels = {sn_rope_avx512, sn_rope_avx2, sn_rope_cpu},
};
