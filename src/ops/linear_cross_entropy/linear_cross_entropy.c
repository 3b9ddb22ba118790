#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include "graph/op.h"
#include "ops/rules.h"

enum { H, W, LABELS, SCALE };
enum { TOKEN_LOSS, DH, DW };

bool sn_cross_entropy_weight(sn_dtype form) { return sn_dtype_is_quantised(form) && form != SN_Q8_1 && form != SN_Q8_K; }

sn_status sn_linear_cross_entropy_check(const char *op, const sn_call *c, bool want_dw) {
    SN_TRY(sn_need_rank(op, c, H, "h", 2));
    SN_TRY(sn_need_float(op, c, H, "h"));
    SN_TRY(sn_need_rank(op, c, W, "w", 2));
    const sn_tensor *h = &c->in[H], *w = &c->in[W];
    char a[96], b[96];
    if (w->shape.d[0] < 1 || w->shape.d[1] != h->shape.d[1])
        return sn_fail(SN_ERR_SHAPE, "%s: w must be [V,%lld] to go with h %s, found %s", op, (long long)h->shape.d[1],
                       sn_shape_text(&h->shape, a), sn_shape_text(&w->shape, b));
    if (!sn_dtype_is_float(w->dtype) && !sn_cross_entropy_weight(w->dtype))
        return sn_fail(SN_ERR_SHAPE, "%s: w must be f32, bf16, f16 or a quantised weight, found %s", op, sn_dtype_name(w->dtype));
    if (want_dw && !sn_dtype_is_float(w->dtype))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: the gradient of w in %s is wanted, but a quantised weight cannot be trained", op,
                       sn_dtype_name(w->dtype));
    SN_TRY(sn_need_form(op, c, LABELS, "labels", SN_I32));
    return sn_need_shape(op, c, LABELS, "labels", &(sn_shape){1, {h->shape.d[0]}});
}

static sn_status shape(sn_call *c) {
    static const char op[] = "linear_cross_entropy";
    bool want_dh = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DH] != 0, want_dw = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW] != 0;
    int64_t chunk = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_CHUNK];
    sn_dtype dw_form;
    SN_TRY(sn_linear_cross_entropy_check(op, c, want_dw));
    const sn_tensor *h = &c->in[H], *w = &c->in[W];
    SN_TRY(sn_need_form(op, c, SCALE, "scale", SN_F32));
    SN_TRY(sn_need_shape(op, c, SCALE, "scale", &(sn_shape){1, {1}}));
    SN_TRY(sn_need_float_attr(op, "dw_dtype", c->attrs.i[SN_LINEAR_CROSS_ENTROPY_DW_DTYPE], &dw_form));
    if (chunk < 0) return sn_fail(SN_ERR_SHAPE, "%s: chunk must be 0 or more tokens, found %lld", op, (long long)chunk);
    sn_set_out(c, TOKEN_LOSS, SN_F32, sn_shape_of(h->shape.d[0]));
    sn_set_no_out(c, DH);
    sn_set_no_out(c, DW);
    if (want_dh) sn_set_out(c, DH, h->dtype, h->shape);
    if (want_dw) sn_set_out(c, DW, dw_form, w->shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tE,VE,t,S->t,tE,VE";
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    if (input == LABELS) return form == SN_I32;
    if (input == SCALE) return form == SN_F32;
    return sn_dtype_is_float(form) || (input == W && sn_cross_entropy_weight(form) && !c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW]);
}

/* The forward call has computed the gradients: its scale stands for the gradient of every token's loss. */
/* The gradients are outputs of the forward node. One that nobody wants (of a frozen head, say) is not computed at all. */
static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    (void)dout;
    sn_node *n = &g->nodes[node];
    for (int i = H; i <= W; i++) {
        if (want[i]) {
            if (n->out[i + 1] == SN_NONE)
                return sn_fail(SN_ERR_INTERNAL, "%s: the gradient of %s is wanted, but want_%s is 0", n->name, i == H ? "h" : "w",
                               i == H ? "dh" : "dw");
            din[i] = n->out[i + 1];
        } else {
            n->attrs.i[i == H ? SN_LINEAR_CROSS_ENTROPY_WANT_DH : SN_LINEAR_CROSS_ENTROPY_WANT_DW] = 0;
            n->out[i + 1] = SN_NONE;
        }
    }
    return SN_OK;
}

sn_cost sn_linear_cross_entropy_cost(const sn_call *c, int dh) {
    double product = 2 * (double)sn_elements(&c->in[H]) * (double)c->in[W].shape.d[0];
    sn_cost cost = {.flops = product, .bytes = (double)sn_tensor_bytes(&c->in[H]) + (double)sn_tensor_bytes(&c->in[W])};
    for (int o = dh; o < c->n_out; o++)
        if (c->out[o].shape.rank > 0) {
            cost.flops += product;
            cost.bytes += (double)sn_tensor_bytes(&c->out[o]);
        }
    return cost;
}

static sn_cost cost(const sn_call *c) { return sn_linear_cross_entropy_cost(c, DH); }

const sn_op sn_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .min_in = 4,
    .max_in = 4,
    .n_out = 3,
    .leaves_out = 1u << DH | 1u << DW,
    .is_loss = true,
    .int_attrs = {"want_dh", "want_dw", "dw_dtype", "chunk"},
    .shape = shape,
    .axes = axes,
    .accepts = accepts,
    .grad = grad,
    .cost = cost,
    .kernels = {sn_linear_cross_entropy_avx512_bf16, sn_linear_cross_entropy_avx512, sn_linear_cross_entropy_avx2,
                sn_linear_cross_entropy_cpu},
};
