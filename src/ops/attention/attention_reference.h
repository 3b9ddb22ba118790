/* What the reference kernels of the attention ops share: element access, any activation form read and written as f64; and the step of an
 * online softmax. */
#ifndef SN_OPS_ATTENTION_REFERENCE_H
#define SN_OPS_ATTENTION_REFERENCE_H

#include <math.h>

#include "ops/attention/attention.h"
#include "tensor/convert.h"
#include "tensor/shape.h"

static inline double sn_form_get(sn_dtype form, const void *p, int64_t i) {
    if (form == SN_F32) return (double)((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return (double)(form == SN_BF16 ? sn_bf16_to_f32(h) : sn_f16_to_f32(h));
}

static inline void sn_form_put(sn_dtype form, void *p, int64_t i, double x) {
    float f = (float)x;
    if (form == SN_F32) ((float *)p)[i] = f;
    else ((uint16_t *)p)[i] = form == SN_BF16 ? sn_f32_to_bf16(f) : sn_f32_to_f16(f);
}

static inline double sn_element(const sn_tensor *t, int64_t row, int64_t col) {
    return sn_form_get(t->dtype, t->data, row * sn_cols(t) + col);
}

static inline void sn_set_element(const sn_tensor *t, int64_t row, int64_t col, double x) {
    sn_form_put(t->dtype, t->data, row * sn_cols(t) + col, x);
}

/* What attention has met so far for one query row: m is the largest score, l the sum of exp(score - m), o[d] that of exp(score - m) v. */
typedef struct sn_softmax_state {
    double m, l, *o;
} sn_softmax_state;

/* Query row t (input 0), columns q_col .. q_col + d - 1, meets key j (input 1) with its value (input 2), columns k_col .. of both. */
static inline void sn_softmax_meet(const sn_call *c, int64_t d, double scale, int64_t t, int64_t q_col, int64_t j, int64_t k_col,
                                   sn_softmax_state *x) {
    double s = 0;
    for (int64_t i = 0; i < d; i++) s += sn_element(&c->in[0], t, q_col + i) * sn_element(&c->in[1], j, k_col + i);
    s *= scale;
    double top = s > x->m ? s : x->m, keep = exp(x->m - top), p = exp(s - top);
    x->l = x->l * keep + p;
    for (int64_t i = 0; i < d; i++) x->o[i] = x->o[i] * keep + p * sn_element(&c->in[2], j, k_col + i);
    x->m = top;
}

/* Of attention and ring_attention: each thread's o. */
static inline size_t sn_softmax_scratch(const sn_call *c, int n_threads) {
    return (size_t)n_threads * (size_t)c->attrs.i[SN_ATTENTION_HEAD_DIM] * sizeof(double);
}

#endif
