#include "ops/linear_cross_entropy/cross_entropy_part.h"

#include "graph/op.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/rules.h"

enum { H, W, LABELS, NORM };

static sn_status check(const char *op, const sn_call *c, bool want_dw) {
    SN_TRY(sn_linear_cross_entropy_check(op, c, want_dw));
    const int64_t *i = c->attrs.i, rows = c->in[W].shape.d[0];
    const int64_t vocab = i[SN_CROSS_ENTROPY_PART_VOCAB], first = i[SN_CROSS_ENTROPY_PART_FIRST];
    if (vocab == rows && first >= 0) return SN_OK;
    return sn_fail(SN_ERR_SHAPE, "%s: vocab must be the %lld rows of w, and first not negative, found %lld and %lld", op, (long long)rows,
                   (long long)vocab, (long long)first);
}

static sn_status shape(sn_call *c) {
    int64_t parts = c->attrs.i[SN_CROSS_ENTROPY_PART_PARTS], chunk = c->attrs.i[SN_CROSS_ENTROPY_PART_CHUNK];
    SN_TRY(check("cross_entropy_part", c, false));
    if (parts < 1 || chunk < 0)
        return sn_fail(SN_ERR_SHAPE, "cross_entropy_part: parts must be 1 or more and chunk 0 or more, found %lld and %lld",
                       (long long)parts, (long long)chunk);
    sn_set_out(c, 0, SN_F64, sn_shape_of(parts, c->in[H].shape.d[0], SN_CROSS_ENTROPY_NORM));
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "tE,vE,t->vtN";
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    if (input == LABELS) return form == SN_I32;
    return sn_dtype_is_float(form) || (input == W && sn_cross_entropy_weight(form));
}

/* The gradient of a part is the norm that cross_entropy_join gives. */
static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    sn_attrs a = {0};
    sn_vid out[SN_MAX_OUT];
    a.i[SN_LINEAR_CROSS_ENTROPY_WANT_DH] = want[H];
    a.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW] = want[W];
    a.i[SN_LINEAR_CROSS_ENTROPY_CHUNK] = n.attrs.i[SN_CROSS_ENTROPY_PART_CHUNK];
    a.i[SN_CROSS_ENTROPY_PART_VOCAB] = n.attrs.i[SN_CROSS_ENTROPY_PART_VOCAB];
    sn_append(g, SN_OP_cross_entropy_part_grad, &a, 4, (sn_vid[]){sn_in(&n, H), sn_in(&n, W), sn_in(&n, LABELS), dout[0]},
              sn_name(g, "%s.grad", n.name), out);
    SN_TRY(g->status);
    if (want[H]) din[H] = out[0];
    if (want[W]) din[W] = out[1];
    return SN_OK;
}

static sn_cost cost(const sn_call *c) { return sn_linear_cross_entropy_cost(c, c->n_out); } /* no gradient among the outputs */

const sn_op sn_op_cross_entropy_part = {
    .name = "cross_entropy_part",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .int_attrs = {"parts", "chunk", NULL, NULL, "vocab", "first"},
    .begins = {{.attr = 1 + SN_CROSS_ENTROPY_PART_FIRST, .operand = W, .dim = 0}},
    .shape = shape,
    .axes = axes,
    .accepts = accepts,
    .grad = grad,
    .cost = cost,
    .kernels = {sn_cross_entropy_part_avx512_bf16, sn_cross_entropy_part_avx512, sn_cross_entropy_part_avx2, sn_cross_entropy_part_cpu},
};

static sn_status grad_shape(sn_call *c) {
    static const char op[] = "cross_entropy_part_grad";
    bool want_dh = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DH] != 0, want_dw = c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW] != 0;
    sn_dtype dw_form;
    SN_TRY(check(op, c, want_dw));
    const sn_tensor *h = &c->in[H], *w = &c->in[W];
    SN_TRY(sn_need_form(op, c, NORM, "norm", SN_F64));
    const sn_shape norm = sn_shape_of(h->shape.d[0], SN_CROSS_ENTROPY_NORM);
    SN_TRY(sn_need_shape(op, c, NORM, "norm", &norm));
    SN_TRY(sn_need_float_attr(op, "dw_dtype", c->attrs.i[SN_LINEAR_CROSS_ENTROPY_DW_DTYPE], &dw_form));
    sn_set_no_out(c, 0);
    sn_set_no_out(c, 1);
    if (want_dh) sn_set_out(c, 0, h->dtype, h->shape);
    if (want_dw) sn_set_out(c, 1, dw_form, w->shape);
    return SN_OK;
}

static const char *grad_axes(const sn_call *c) {
    (void)c;
    return "tE,vE,t,tN->tE,vE";
}

static bool grad_accepts(const sn_call *c, int input, sn_dtype form) {
    if (input == LABELS) return form == SN_I32;
    if (input == NORM) return form == SN_F64;
    return sn_dtype_is_float(form) || (input == W && sn_cross_entropy_weight(form) && !c->attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW]);
}

static sn_cost grad_cost(const sn_call *c) { return sn_linear_cross_entropy_cost(c, 0); }

const sn_op sn_op_cross_entropy_part_grad = {
    .name = "cross_entropy_part_grad",
    .min_in = 4,
    .max_in = 4,
    .n_out = 2,
    .leaves_out = 3,
    .int_attrs = {"want_dh", "want_dw", "dw_dtype", "chunk", "vocab", "first"},
    .begins = {{.attr = 1 + SN_CROSS_ENTROPY_PART_FIRST, .operand = W, .dim = 0}},
    .shape = grad_shape,
    .axes = grad_axes,
    .accepts = grad_accepts,
    .cost = grad_cost,
    .kernels = {sn_cross_entropy_part_grad_avx512_bf16, sn_cross_entropy_part_grad_avx512, sn_cross_entropy_part_grad_avx2,
                sn_cross_entropy_part_grad_cpu},
};
