/* Element access for the reference kernels of the attention ops: any activation form, read and written as f64. */
#ifndef SN_OPS_ATTENTION_REFERENCE_H
#define SN_OPS_ATTENTION_REFERENCE_H

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

#endif
