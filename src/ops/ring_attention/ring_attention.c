#include "ops/ring_attention/ring_attention.h"

#include "graph/op.h"
#include "ops/rules.h"

sn_status sn_ring_attention_check(const sn_call *c, const char *op, int first, int places) {
    static const char *const names[] = {"q", "k", "v"}, *const of_places[] = {"index", "key_index", "seq_start"};
    const sn_tensor *in = &c->in[first];
    const int64_t head_dim = c->attrs.i[SN_RING_ATTENTION_HEAD_DIM], window = c->attrs.i[SN_RING_ATTENTION_WINDOW];
    char text[96];
    if (head_dim < 1) return sn_fail(SN_ERR_SHAPE, "%s: wanted head_dim of at least 1, found %lld", op, (long long)head_dim);
    if (window < 0) return sn_fail(SN_ERR_SHAPE, "%s: wanted a window of at least 0, found %lld", op, (long long)window);
    if (!(c->attrs.f[SN_RING_ATTENTION_SCALE] > 0))
        return sn_fail(SN_ERR_SHAPE, "%s: wanted a scale above 0, found %g", op, c->attrs.f[SN_RING_ATTENTION_SCALE]);
    for (int i = 0; i < 3; i++) {
        SN_TRY(sn_need_rank(op, c, first + i, names[i], 2));
        SN_TRY(sn_need_float(op, c, first + i, names[i]));
        if (in[i].shape.d[1] < head_dim || in[i].shape.d[1] % head_dim)
            return sn_fail(SN_ERR_SHAPE, "%s: wanted %s [T, heads*%lld], found %s", op, names[i], (long long)head_dim,
                           sn_shape_text(&in[i].shape, text));
    }
    SN_TRY(sn_need_shape(op, c, first + 2, "v", &in[1].shape));
    if (in[0].shape.d[1] % in[1].shape.d[1])
        return sn_fail(SN_ERR_SHAPE, "%s: wanted a multiple of %lld key/value heads, found %lld query heads", op,
                       (long long)(in[1].shape.d[1] / head_dim), (long long)(in[0].shape.d[1] / head_dim));
    for (int i = 0; i < 3; i++) {
        const sn_shape tokens = sn_shape_of(in[i == 1].shape.d[0]);
        SN_TRY(sn_need_shape(op, c, places + i, of_places[i], &tokens));
        SN_TRY(sn_need_form(op, c, places + i, of_places[i], SN_I32));
    }
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    SN_TRY(sn_ring_attention_check(c, "ring_attention", 0, 3));
    const sn_shape *q = &c->in[0].shape, lse = sn_shape_of(q->d[0], q->d[1] / c->attrs.i[SN_RING_ATTENTION_HEAD_DIM]);
    if (sn_has(c, 6) || sn_has(c, 7)) {
        SN_TRY(sn_need_shape("ring_attention", c, 6, "o", q));
        SN_TRY(sn_need_form("ring_attention", c, 6, "o", SN_F32));
        SN_TRY(sn_need_shape("ring_attention", c, 7, "lse", &lse));
        SN_TRY(sn_need_form("ring_attention", c, 7, "lse", SN_F32));
    }
    sn_set_out(c, 0, SN_F32, *q);
    sn_set_out(c, 1, SN_F32, lse);
    return SN_OK;
}

/* t: tokens, of this rank and of the visiting run, which are shards alike. h: heads, as in attention. */
static const char *axes(const sn_call *c) { return c->n_in > 6 ? "th,th,th,t,t,t,th,th->th,th" : "th,th,th,t,t,t->th,th"; }

double sn_ring_attention_pairs(int64_t n_tokens, int64_t n_keys, int64_t window) {
    double seen = (double)n_keys / 2;
    return (double)n_tokens * (window > 0 && (double)window < seen ? (double)window : seen);
}

static sn_cost cost(const sn_call *c) {
    sn_cost k = sn_cost_each(c, 0, 0);
    double pairs = sn_ring_attention_pairs(c->in[0].shape.d[0], c->in[1].shape.d[0], c->attrs.i[SN_RING_ATTENTION_WINDOW]);
    k.flops = 4 * pairs * (double)c->in[0].shape.d[1];
    return k;
}

const sn_op sn_op_ring_attention = {
    .name = "ring_attention",
    .min_in = 6,
    .max_in = 8,
    .n_out = 2,
    .int_attrs = {"head_dim", "window"},
    .float_attrs = {"scale"},
    .shape = shape,
    .axes = axes,
    .cost = cost,
    .pairs = true,
    .alias = {1u << 6, 1u << 7},
    .kernels = {sn_ring_attention_avx512, sn_ring_attention_avx2, sn_ring_attention_cpu},
};
