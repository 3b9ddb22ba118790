/* Conversion between forms. One scalar definition of every rounding; SIMD kernels must give the same bits.
 *
 * Sources: IEEE 754 (f16), bfloat16 round-to-nearest-even, the GGUF block formats as ggml defines them. */
#ifndef SN_TENSOR_CONVERT_H
#define SN_TENSOR_CONVERT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "tensor/dtype.h"

static inline float sn_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t sn_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float sn_bf16_to_f32(uint16_t h) { return sn_bits_f32((uint32_t)h << 16); }
static inline uint16_t sn_f32_to_bf16(float f) { /* nearest even; a NaN stays a (quiet) NaN */
    uint32_t u = sn_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
float sn_f16_to_f32(uint16_t h);
uint16_t sn_f32_to_f16(float f);

/* Rows of n elements (n a whole number of blocks). Every float or block format of SN_DTYPE_LIST can be decoded.
 * Pointers may not overlap, except that both may be equal for f32. */
void sn_to_f32(sn_dtype from, const void *row, int64_t n, float *out);

/* Encodes with the format's plain rounding (for block formats: ggml's reference quantisers of q4_0, q4_1, q5_0, q5_1,
 * q8_0, q8_1). SN_ERR_UNSUPPORTED for a form that has no encoder. */
sn_status sn_from_f32(sn_dtype to, const float *row, int64_t n, void *out);

#endif
