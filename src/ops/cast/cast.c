#include "ops/cast/cast.h"

#include "graph/op.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const sn_tensor *x = &c->in[0];
    int64_t to = c->attrs.i[SN_CAST_DTYPE];
    char text[96];
    size_t bytes;
    SN_TRY(sn_need_any("cast", c, 0, "x"));
    if (to < 0 || to >= SN_DTYPE_COUNT) return sn_fail(SN_ERR_USAGE, "cast: dtype %lld is no form", (long long)to);
    if (!sn_cast_reads(x->dtype))
        return sn_fail(SN_ERR_UNSUPPORTED, "cast: x is %s, wanted a float or block form", sn_dtype_name(x->dtype));
    if (!sn_cast_writes((sn_dtype)to)) return sn_fail(SN_ERR_UNSUPPORTED, "cast: no encoder for %s", sn_dtype_name((sn_dtype)to));
    if (!sn_dtype_row_bytes((sn_dtype)to, sn_cols(x), &bytes) || !sn_dtype_row_bytes(x->dtype, sn_cols(x), &bytes))
        return sn_fail(SN_ERR_SHAPE, "cast: rows of x %s are no whole number of blocks of %s and %s", sn_shape_text(&x->shape, text),
                       sn_dtype_name(x->dtype), sn_dtype_name((sn_dtype)to));
    sn_set_no_out(c, 0);
    if (!sn_has(c, 1)) {
        sn_set_out(c, 0, (sn_dtype)to, x->shape);
        return SN_OK;
    }
    SN_TRY(sn_need_form("cast", c, 1, "into", (sn_dtype)to));
    return sn_need_shape("cast", c, 1, "into", &x->shape);
}

/* Element by element; a row of a block form stays whole. */
static const char *axes(const sn_call *c) {
    static const char *const split[] = {NULL, "a->a", "ab->ab", "abc->abc", "abcd->abcd", "abcde->abcde"};
    static const char *const whole[] = {NULL, "A->A", "aB->aB", "abC->abC", "abcD->abcD", "abcdE->abcdE"};
    if (sn_has(c, 1)) return sn_axes_same(c->in[0].shape.rank, 2, 0); /* shards hold whole blocks */
    bool blocks = sn_dtype_is_quantised(c->in[0].dtype) || sn_dtype_is_quantised((sn_dtype)c->attrs.i[SN_CAST_DTYPE]);
    return (blocks ? whole : split)[c->in[0].shape.rank];
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    size_t bytes;
    if (input == 1) return form == (sn_dtype)c->attrs.i[SN_CAST_DTYPE];
    return sn_cast_reads(form) && sn_dtype_row_bytes(form, sn_cols(&c->in[0]), &bytes);
}

/* dx is dy in the form of x; rounding and quantisation pass the gradient straight through. x in a block form: dy as it is. */
static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    if (!want[0] || dout[0] == SN_NONE) return SN_OK;
    sn_dtype form = g->values[g->nodes[node].in[0].value].dtype;
    din[0] = sn_dtype_is_float(form) ? sn_in_form(g, dout[0], form) : dout[0];
    return g->status;
}

const sn_op sn_op_cast = {
    .name = "cast",
    .min_in = 1,
    .max_in = 2,
    .n_out = 1,
    .mutates = 2,
    .into = 2,
    .int_attrs = {"dtype"},
    .shape = shape,
    .axes = axes,
    .accepts = accepts,
    .grad = grad,
    .kernels = {sn_cast_avx512, sn_cast_avx2, sn_cast_cpu},
};
