/* exp in f32 without branches, so that loops over it become vectors with the same bits on every processor. */
#ifndef SN_OPS_MATH_EXPF_H
#define SN_OPS_MATH_EXPF_H

#include <stdint.h>

#include "tensor/convert.h"

/* e^x within 1.5 units in the last place; 0 below -104, infinity above 89, NaN for NaN.
 *
 * x = k ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite's reduction, ln 2 in two parts), e^r from a polynomial of degree 6
 * fitted for least relative error, then times 2^k in two steps, so that results below 2^-126 round once. */
static inline float sn_expf(float x) {
    const uint32_t limit = 0x42d00000u; /* 104: beyond it the result is 0 or infinity */
    uint32_t bits = sn_f32_bits(x), size = bits & 0x7fffffffu;
    x = sn_bits_f32(size - limit <= 0x7f800000u - limit ? limit | (bits & 0x80000000u) : bits); /* leaves a NaN */
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    float shifted = x * 1.44269504f + round, k = shifted - round;
    int32_t n = (int32_t)(sn_f32_bits(shifted) - 0x4b400000u), half = n >> 1;
    float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
    float q = 0x1.fffffcp-2f + r * (0x1.555492p-3f + r * (0x1.5558f4p-5f + r * (0x1.123a20p-7f + r * 0x1.6a23c8p-10f)));
    float p = 1.0f + (r + (r * r) * q);
    return (p * sn_bits_f32((uint32_t)(half + 127) << 23)) * sn_bits_f32((uint32_t)(n - half + 127) << 23);
}

#endif
