#include "ops/attention/attention.h"

#include "graph/op.h"

sn_status sn_attention_check(const sn_call *c, const char *op, int first) {
    static const char *const names[] = {"q", "k", "v"};
    const sn_tensor *in = &c->in[first];
    int64_t head_dim = c->attrs.i[SN_ATTENTION_HEAD_DIM], window = c->attrs.i[SN_ATTENTION_WINDOW];
    char a[96], b[96];
    if (head_dim < 1) return sn_fail(SN_ERR_SHAPE, "%s: wanted head_dim of at least 1, found %lld", op, (long long)head_dim);
    if (window < 0) return sn_fail(SN_ERR_SHAPE, "%s: wanted a window of at least 0, found %lld", op, (long long)window);
    if (!(c->attrs.f[SN_ATTENTION_SCALE] > 0))
        return sn_fail(SN_ERR_SHAPE, "%s: wanted a scale above 0, found %g", op, c->attrs.f[SN_ATTENTION_SCALE]);
    for (int i = 0; i < 3; i++)
        if (!sn_dtype_is_float(in[i].dtype) || in[i].shape.rank != 2 || in[i].shape.d[1] < head_dim || in[i].shape.d[1] % head_dim)
            return sn_fail(SN_ERR_SHAPE, "%s: wanted %s f32, bf16 or f16 [T, heads*%lld], found %s %s", op, names[i], (long long)head_dim,
                           sn_dtype_name(in[i].dtype), sn_shape_text(&in[i].shape, a));
    for (int i = 1; i < 3; i++)
        if (in[i].shape.d[0] != in[0].shape.d[0] || in[i].shape.d[1] != in[1].shape.d[1])
            return sn_fail(SN_ERR_SHAPE, "%s: wanted %s [%lld,%lld] to go with q %s, found %s", op, names[i], (long long)in[0].shape.d[0],
                           (long long)in[1].shape.d[1], sn_shape_text(&in[0].shape, a), sn_shape_text(&in[i].shape, b));
    if (in[0].shape.d[1] % in[1].shape.d[1])
        return sn_fail(SN_ERR_SHAPE, "%s: wanted a multiple of %lld key/value heads, found %lld query heads", op,
                       (long long)(in[1].shape.d[1] / head_dim), (long long)(in[0].shape.d[1] / head_dim));
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    SN_TRY(sn_attention_check(c, "attention", 0));
    const sn_tensor *q = &c->in[0], *start = &c->in[3];
    char a[96];
    if (start->dtype != SN_I32 || start->shape.rank != 1 || start->shape.d[0] != q->shape.d[0])
        return sn_fail(SN_ERR_SHAPE, "attention: wanted seq_start i32 [%lld], found %s %s", (long long)q->shape.d[0],
                       sn_dtype_name(start->dtype), sn_shape_text(&start->shape, a));
    c->out[0].dtype = q->dtype;
    c->out[0].shape = q->shape;
    c->out[1].dtype = SN_F32;
    c->out[1].shape = sn_shape_of(q->shape.d[0], q->shape.d[1] / c->attrs.i[SN_ATTENTION_HEAD_DIM]);
    return SN_OK;
}

/* t: tokens; a shard holds whole sequences, and seq_start counts within it. h: heads. q, k, v and lse have different extents
 * along it but are split alike, a key/value head with its queries. */
static const char *axes(const sn_call *c) {
    (void)c;
    return "th,th,th,t->th,th";
}

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    if (!want[0] && !want[1] && !want[2]) return SN_OK;
    const sn_node *n = &g->nodes[node];
    if (dout[1] != SN_NONE) return sn_fail(SN_ERR_UNSUPPORTED, "attention: wanted no gradient of lse, found one");
    sn_attrs attrs = n->attrs;
    sn_vid in[7] = {dout[0], n->in[0].value, n->in[1].value, n->in[2].value, n->out[0], n->out[1], n->in[3].value}, out[3];
    sn_append(g, SN_OP_attention_grad, &attrs, 7, in, n->name ? sn_name(g, "%s.grad", n->name) : NULL, out);
    if (g->status != SN_OK) return g->status;
    for (int i = 0; i < 3; i++)
        if (want[i]) din[i] = out[i];
    return SN_OK;
}

double sn_attention_pairs(int64_t n_tokens, int64_t window) {
    double n = (double)n_tokens, w = window > 0 && window < n_tokens ? (double)window : n;
    return w * (w + 1) / 2 + (n - w) * w;
}

static sn_cost cost(const sn_call *c) { /* one sequence of T tokens: packing makes it cheaper, which no shape tells */
    double pairs = sn_attention_pairs(c->in[0].shape.d[0], c->attrs.i[SN_ATTENTION_WINDOW]);
    int64_t heads = c->in[0].shape.d[1] / c->attrs.i[SN_ATTENTION_HEAD_DIM];
    double bytes = 2 * (double)sn_tensor_bytes(&c->in[0]);
    for (int i = 1; i < 4; i++) bytes += (double)sn_tensor_bytes(&c->in[i]);
    bytes += 4 * (double)c->in[0].shape.d[0] * (double)heads;
    return (sn_cost){.flops = 4 * pairs * (double)c->in[0].shape.d[1], .bytes = bytes};
}

const sn_op sn_op_attention = {
    .name = "attention",
    .min_in = 4,
    .max_in = 4,
    .n_out = 2,
    .int_attrs = {"head_dim", "window"},
    .float_attrs = {"scale"},
    .shape = shape,
    .axes = axes,
    .grad = grad,
    .cost = cost,
    .pairs = true,
    .kernels = {sn_attention_avx512, sn_attention_avx2, sn_attention_cpu},
};
