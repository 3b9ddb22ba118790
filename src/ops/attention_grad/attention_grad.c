#include "ops/attention_grad/attention_grad.h"

#include "graph/op.h"
#include "ops/attention/attention.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_attention_check(c, "attention_grad", 1));
    const sn_tensor *q = &c->in[1];
    char a[96], b[96];
    for (int i = 0; i < 5; i += 4)
        if (!sn_dtype_is_float(c->in[i].dtype) || !sn_shape_equal(&c->in[i].shape, &q->shape))
            return sn_fail(SN_ERR_SHAPE, "attention_grad: wanted %s f32, bf16 or f16 %s, found %s %s", i ? "o" : "do",
                           sn_shape_text(&q->shape, a), sn_dtype_name(c->in[i].dtype), sn_shape_text(&c->in[i].shape, b));
    sn_shape lse = sn_shape_of(q->shape.d[0], q->shape.d[1] / c->attrs.i[SN_ATTENTION_GRAD_HEAD_DIM]), start = sn_shape_of(q->shape.d[0]);
    if (c->in[5].dtype != SN_F32 || !sn_shape_equal(&c->in[5].shape, &lse))
        return sn_fail(SN_ERR_SHAPE, "attention_grad: wanted lse f32 %s, found %s %s", sn_shape_text(&lse, a),
                       sn_dtype_name(c->in[5].dtype), sn_shape_text(&c->in[5].shape, b));
    if (c->in[6].dtype != SN_I32 || !sn_shape_equal(&c->in[6].shape, &start))
        return sn_fail(SN_ERR_SHAPE, "attention_grad: wanted seq_start i32 %s, found %s %s", sn_shape_text(&start, a),
                       sn_dtype_name(c->in[6].dtype), sn_shape_text(&c->in[6].shape, b));
    for (int i = 0; i < 3; i++) {
        c->out[i].dtype = c->in[1 + i].dtype;
        c->out[i].shape = c->in[1 + i].shape;
    }
    return SN_OK;
}

static const char *axes(const sn_call *c) { /* as in attention */
    (void)c;
    return "th,th,th,th,th,th,t->th,th,th";
}

static sn_cost cost(const sn_call *c) { /* five products a pair; the kernels do seven, for want of atomics */
    double pairs = sn_attention_pairs(c->in[1].shape.d[0], c->attrs.i[SN_ATTENTION_GRAD_WINDOW]), bytes = 0;
    for (int i = 0; i < 7; i++) bytes += (double)sn_tensor_bytes(&c->in[i]) * (i >= 1 && i <= 3 ? 2 : 1);
    return (sn_cost){.flops = 10 * pairs * (double)c->in[1].shape.d[1], .bytes = bytes};
}

const sn_op sn_op_attention_grad = {
    .name = "attention_grad",
    .min_in = 7,
    .max_in = 7,
    .n_out = 3,
    .int_attrs = {"head_dim", "window"},
    .float_attrs = {"scale"},
    .shape = shape,
    .axes = axes,
    .cost = cost,
    .pairs = true,
    .kernels = {sn_attention_grad_avx512, sn_attention_grad_avx2, sn_attention_grad_cpu},
};
