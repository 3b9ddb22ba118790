/* What the reference kernels of attention_grad and ring_attention_grad share: all but which queries see a key. The inputs do, q, k, v, o
 * and lse of their calls are the first six, head_dim, window and scale stand in attention's slots. */
#ifndef SN_OPS_ATTENTION_GRAD_REFERENCE_H
#define SN_OPS_ATTENTION_GRAD_REFERENCE_H

#include <math.h>

#include "ops/attention/attention_reference.h"
#include "ops/attention_grad/attention_grad.h"

typedef struct sn_attention_grad_reference {
    const sn_call *c;
    int64_t n, n_keys, d, heads, kv_heads, group, window;
    double scale;
    double *sums; /* one thread's rows of sums, 2 d each */
} sn_attention_grad_reference;

static inline sn_attention_grad_reference sn_attention_grad_reference_of(const sn_call *c) {
    int64_t d = c->attrs.i[SN_ATTENTION_GRAD_HEAD_DIM], heads = sn_cols(&c->in[1]) / d, kv_heads = sn_cols(&c->in[2]) / d;
    return (sn_attention_grad_reference){.c = c,
                                         .n = sn_rows(&c->in[1]),
                                         .n_keys = sn_rows(&c->in[2]),
                                         .d = d,
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .group = heads / kv_heads,
                                         .window = c->attrs.i[SN_ATTENTION_GRAD_WINDOW],
                                         .scale = c->attrs.f[SN_ATTENTION_GRAD_SCALE],
                                         .sums = c->scratch};
}

static inline size_t sn_attention_grad_reference_scratch(const sn_call *c, int n_threads) {
    return (size_t)n_threads * 2 * (size_t)c->attrs.i[SN_ATTENTION_GRAD_HEAD_DIM] * sizeof(double);
}

/* This thread's sums, zeros: dq, or dk and, d further, dv. */
static inline double *sn_attention_grad_reference_sums(const sn_attention_grad_reference *b, int member) {
    double *sums = b->sums + member * 2 * b->d;
    for (int64_t i = 0; i < 2 * b->d; i++) sums[i] = 0;
    return sums;
}

static inline double sn_attention_grad_dot(const sn_tensor *a, int64_t row_a, int64_t col_a, const sn_tensor *x, int64_t row_x,
                                           int64_t col_x, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += sn_element(a, row_a, col_a + i) * sn_element(x, row_x, col_x + i);
    return s;
}

/* Probability p of key j for query t of head h, and ds = dL/ds of the scaled score. */
static inline void sn_attention_grad_pair(const sn_attention_grad_reference *b, int64_t t, int64_t j, int64_t h, double *p, double *ds) {
    const sn_tensor *in = b->c->in;
    int64_t q_col = h * b->d, k_col = h / b->group * b->d;
    double s = b->scale * sn_attention_grad_dot(&in[1], t, q_col, &in[2], j, k_col, b->d);
    double delta = sn_attention_grad_dot(&in[0], t, q_col, &in[4], t, q_col, b->d);
    *p = exp(s - (double)((const float *)in[5].data)[t * b->heads + h]);
    *ds = *p * (sn_attention_grad_dot(&in[0], t, q_col, &in[3], j, k_col, b->d) - delta);
}

/* What key j adds to dq / scale of query t and head h. */
static inline void sn_attention_grad_add_dq(const sn_attention_grad_reference *b, int64_t t, int64_t j, int64_t h, double *dq) {
    double p, ds;
    sn_attention_grad_pair(b, t, j, h, &p, &ds);
    for (int64_t i = 0; i < b->d; i++) dq[i] += ds * sn_element(&b->c->in[2], j, h / b->group * b->d + i);
}

/* What query t adds to dk / scale of key j and key/value head g, and to dv. */
static inline void sn_attention_grad_add_dkv(const sn_attention_grad_reference *b, int64_t t, int64_t j, int64_t g, double *dk) {
    double *dv = dk + b->d;
    for (int64_t h = g * b->group; h < (g + 1) * b->group; h++) {
        double p, ds;
        sn_attention_grad_pair(b, t, j, h, &p, &ds);
        for (int64_t i = 0; i < b->d; i++) {
            dk[i] += ds * sn_element(&b->c->in[1], t, h * b->d + i);
            dv[i] += p * sn_element(&b->c->in[0], t, h * b->d + i);
        }
    }
}

#endif
