#include "ops/ring_attention_grad/ring_attention_grad.h"

#include "graph/op.h"
#include "ops/ring_attention/ring_attention.h"
#include "ops/rules.h"

static const char name[] = "ring_attention_grad";

static sn_status shape(sn_call *c) {
    static const char *const sums[] = {"dq", "dk", "dv"};
    const int64_t of = c->attrs.i[SN_RING_ATTENTION_GRAD_OF];
    if (of != SN_RING_OF_QUERIES && of != SN_RING_OF_KEYS)
        return sn_fail(SN_ERR_SHAPE, "%s: of must be 0 or 1, found %lld", name, (long long)of);
    SN_TRY(sn_ring_attention_check(c, name, 1, 6));
    const sn_shape *q = &c->in[1].shape, lse = sn_shape_of(q->d[0], q->d[1] / c->attrs.i[SN_RING_ATTENTION_GRAD_HEAD_DIM]);
    SN_TRY(sn_need_shape(name, c, 0, "do", q));
    SN_TRY(sn_need_float(name, c, 0, "do"));
    SN_TRY(sn_need_shape(name, c, 4, "o", q));
    SN_TRY(sn_need_float(name, c, 4, "o"));
    SN_TRY(sn_need_shape(name, c, 5, "lse", &lse));
    SN_TRY(sn_need_form(name, c, 5, "lse", SN_F32));
    for (int i = 0; i < 3; i++) {
        sn_set_no_out(c, i);
        bool wanted = (i > 0) == (of == SN_RING_OF_KEYS);
        if (wanted) sn_set_out(c, i, SN_F32, c->in[1 + i].shape);
        if (!sn_has(c, 9 + i)) continue;
        if (!wanted) return sn_fail(SN_ERR_SHAPE, "%s: %s came in and is not wanted", name, sums[i]);
        SN_TRY(sn_need_shape(name, c, 9 + i, sums[i], &c->in[1 + i].shape));
        SN_TRY(sn_need_form(name, c, 9 + i, sums[i], SN_F32));
    }
    if (sn_has(c, 10) != sn_has(c, 11)) return sn_fail(SN_ERR_SHAPE, "%s: dk and dv come in together", name);
    return SN_OK;
}

static const char *axes(const sn_call *c) { /* as in ring_attention */
    (void)c;
    return "th,th,th,th,th,th,t,t,t,th,th,th->th,th,th";
}

static sn_cost cost(const sn_call *c) { /* three products a pair, or four: both make the probabilities again */
    double pairs = sn_ring_attention_pairs(c->in[1].shape.d[0], c->in[2].shape.d[0], c->attrs.i[SN_RING_ATTENTION_GRAD_WINDOW]);
    sn_cost k = sn_cost_each(c, 0, 0);
    k.flops = 2 * (c->attrs.i[SN_RING_ATTENTION_GRAD_OF] == SN_RING_OF_QUERIES ? 3 : 4) * pairs * (double)c->in[1].shape.d[1];
    return k;
}

const sn_op sn_op_ring_attention_grad = {
    .name = name,
    .min_in = 9,
    .max_in = 12,
    .n_out = 3,
    .int_attrs = {"head_dim", "window", "of"},
    .float_attrs = {"scale"},
    .shape = shape,
    .axes = axes,
    .cost = cost,
    .pairs = true,
    .alias = {1u << 9, 1u << 10, 1u << 11},
    .kernels = {sn_ring_attention_grad_avx512, sn_ring_attention_grad_avx2, sn_ring_attention_grad_cpu},
};
