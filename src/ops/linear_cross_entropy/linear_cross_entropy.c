#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include "graph/op.h"

enum { H, W, LABELS, SCALE };
enum { TOKEN_LOSS, DH, DW };

static bool is_weight_format(sn_dtype t) { return sn_dtype_is_quantised(t) && t != SN_Q8_1 && t != SN_Q8_K; }

static sn_status shape(sn_call *c) {
    const sn_tensor *h = &c->in[H], *w = &c->in[W], *labels = &c->in[LABELS], *scale = &c->in[SCALE];
    bool want_dh = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DH] != 0, want_dw = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW] != 0;
    int64_t dw_form = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_DW_DTYPE], chunk = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_CHUNK];
    char a[96], b[96];
    size_t bytes;
    if (h->shape.rank != 2 || !sn_dtype_is_float(h->dtype) || !sn_shape_bytes(&h->shape, h->dtype, &bytes))
        return sn_fail(SN_ERR_SHAPE, "linear_cross_entropy: h must be f32, bf16 or f16 [T,E], found %s %s", sn_dtype_name(h->dtype),
                       sn_shape_text(&h->shape, a));
    if (w->shape.rank != 2 || w->shape.d[0] < 1 || w->shape.d[1] != h->shape.d[1])
        return sn_fail(SN_ERR_SHAPE, "linear_cross_entropy: w must be [V,%lld] to go with h %s, found %s", (long long)h->shape.d[1],
                       sn_shape_text(&h->shape, a), sn_shape_text(&w->shape, b));
    if ((!sn_dtype_is_float(w->dtype) && !is_weight_format(w->dtype)) || !sn_shape_bytes(&w->shape, w->dtype, &bytes))
        return sn_fail(SN_ERR_SHAPE, "linear_cross_entropy: w must be f32, bf16, f16 or a quantised weight, found %s %s", sn_dtype_name(w->dtype),
                       sn_shape_text(&w->shape, b));
    if (want_dw && !sn_dtype_is_float(w->dtype))
        return sn_fail(SN_ERR_UNSUPPORTED, "linear_cross_entropy: the gradient of w in %s is wanted, but a quantised weight cannot be trained",
                       sn_dtype_name(w->dtype));
    if (labels->dtype != SN_I32 || labels->shape.rank != 1 || labels->shape.d[0] != h->shape.d[0])
        return sn_fail(SN_ERR_SHAPE, "linear_cross_entropy: labels must be i32 [%lld], found %s %s", (long long)h->shape.d[0],
                       sn_dtype_name(labels->dtype), sn_shape_text(&labels->shape, a));
    if (scale->dtype != SN_F32 || scale->shape.rank != 1 || scale->shape.d[0] != 1)
        return sn_fail(SN_ERR_SHAPE, "linear_cross_entropy: scale must be f32 [1], found %s %s", sn_dtype_name(scale->dtype),
                       sn_shape_text(&scale->shape, a));
    if (dw_form < 0 || dw_form >= SN_DTYPE_COUNT || !sn_dtype_is_float((sn_dtype)dw_form))
        return sn_fail(SN_ERR_SHAPE, "linear_cross_entropy: dw_dtype must be f32, bf16 or f16, found %s",
                       dw_form < 0 || dw_form >= SN_DTYPE_COUNT ? "no form" : sn_dtype_name((sn_dtype)dw_form));
    if (chunk < 0) return sn_fail(SN_ERR_SHAPE, "linear_cross_entropy: chunk must be 0 or more tokens, found %lld", (long long)chunk);
    for (int i = 0; i < 3; i++) c->out[i] = (sn_tensor){.dtype = SN_F32};
    c->out[TOKEN_LOSS].shape = sn_shape_of(h->shape.d[0]);
    if (want_dh) c->out[DH] = (sn_tensor){.dtype = h->dtype, .shape = h->shape};
    if (want_dw) c->out[DW] = (sn_tensor){.dtype = (sn_dtype)dw_form, .shape = w->shape};
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tE,VE,t,S->t,tE,VE";
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    if (input == LABELS) return form == SN_I32;
    if (input == SCALE) return form == SN_F32;
    return sn_dtype_is_float(form) || (input == W && is_weight_format(form) && !c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW]);
}

/* The forward call has computed the gradients: its scale stands for the gradient of every token's loss. */
static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    (void)dout;
    const sn_node *n = &g->nodes[node];
    for (int i = H; i <= W; i++) {
        if (!want[i]) continue;
        if (n->out[i + 1] == SN_NONE)
            return sn_fail(SN_ERR_INTERNAL, "%s: the gradient of %s is wanted, but want_%s is 0", n->name, i == H ? "h" : "w", i == H ? "dh" : "dw");
        din[i] = n->out[i + 1];
    }
    return SN_OK;
}

static sn_cost cost(const sn_call *c) {
    double product = 2 * (double)sn_elements(&c->in[H]) * (double)c->in[W].shape.d[0];
    sn_cost cost = {.flops = product, .bytes = (double)sn_tensor_bytes(&c->in[H]) + (double)sn_tensor_bytes(&c->in[W])};
    for (int o = DH; o <= DW; o++)
        if (c->out[o].shape.rank > 0) {
            cost.flops += product;
            cost.bytes += (double)sn_tensor_bytes(&c->out[o]);
        }
    return cost;
}

const sn_op sn_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .min_in = 4,
    .max_in = 4,
    .n_out = 3,
    .int_attrs = {"want_dh", "want_dw", "dw_dtype", "chunk"},
    .shape = shape,
    .axes = axes,
    .accepts = accepts,
    .grad = grad,
    .cost = cost,
    .kernels = {sn_linear_cross_entropy_avx512_bf16, sn_linear_cross_entropy_avx512, sn_linear_cross_entropy_avx2, sn_linear_cross_entropy_cpu},
};
