/* exp in f32 with equal bits in scalar, AVX2 and AVX-512 code, for kernels to share.
 *
 * e^x = 2^n e^r, n = x log2(e) rounded to a whole number, r = x - n ln 2 in [-0.347, 0.347] by two fused steps (Cody and
 * Waite), e^r by a polynomial of degree 6 in Horner form with fused multiply-adds, 2^n in two factors, so that denormal
 * results round once. Error at most 0.86 units in the last place; e^x = 0 below -104, infinity above 88.73, NaN for NaN.
 * Every operation is one correctly rounded IEEE operation, the same in each variant. */
#ifndef SN_OPS_MATH_VECTOR_MATH_H
#define SN_OPS_MATH_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tensor/convert.h"

#define SN_EXP_LOW (-104.0f)
#define SN_EXP_HIGH 89.0f
#define SN_EXP_LOG2E 0x1.715476p+0f
#define SN_EXP_LN2_HIGH 0x1.62e430p-1f    /* ln 2 rounded to f32 */
#define SN_EXP_LN2_LOW (-0x1.05c610p-29f) /* ln 2 - high */
#define SN_EXP_ROUND 0x1.8p23f            /* adding it rounds to a whole number, kept in the low bits */
#define SN_EXP_C2 0x1.fffffcp-2f
#define SN_EXP_C3 0x1.555490p-3f
#define SN_EXP_C4 0x1.5558f4p-5f
#define SN_EXP_C5 0x1.123a6cp-7f
#define SN_EXP_C6 0x1.6a2352p-10f

static inline float sn_exp_f32(float x) {
    x = SN_EXP_LOW > x ? SN_EXP_LOW : x; /* a NaN stays */
    x = SN_EXP_HIGH < x ? SN_EXP_HIGH : x;
    float t = fmaf(x, SN_EXP_LOG2E, SN_EXP_ROUND), n = t - SN_EXP_ROUND;
    int32_t i = (int32_t)(sn_f32_bits(t) - sn_f32_bits(SN_EXP_ROUND)), half = i >> 1;
    float r = fmaf(n, -SN_EXP_LN2_HIGH, x);
    r = fmaf(n, -SN_EXP_LN2_LOW, r);
    float p = fmaf(SN_EXP_C6, r, SN_EXP_C5);
    p = fmaf(p, r, SN_EXP_C4);
    p = fmaf(p, r, SN_EXP_C3);
    p = fmaf(p, r, SN_EXP_C2);
    p = fmaf(p, r, 1);
    p = fmaf(p, r, 1);
    return p * sn_bits_f32((uint32_t)(half + 127) << 23) * sn_bits_f32((uint32_t)(i - half + 127) << 23);
}

#ifdef __AVX2__
static inline __m256 sn_exp_avx2(__m256 x) {
    const __m256 one = _mm256_set1_ps(1);
    x = _mm256_max_ps(_mm256_set1_ps(SN_EXP_LOW), x); /* the second operand when one is a NaN */
    x = _mm256_min_ps(_mm256_set1_ps(SN_EXP_HIGH), x);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(SN_EXP_LOG2E), _mm256_set1_ps(SN_EXP_ROUND)),
           n = _mm256_sub_ps(t, _mm256_set1_ps(SN_EXP_ROUND));
    __m256i i = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(_mm256_set1_ps(SN_EXP_ROUND))), half = _mm256_srai_epi32(i, 1);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SN_EXP_LN2_HIGH), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SN_EXP_LN2_LOW), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(SN_EXP_C6), r, _mm256_set1_ps(SN_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SN_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SN_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SN_EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    __m256i bias = _mm256_set1_epi32(127);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23)));
}
#endif

#ifdef __AVX512F__
static inline __m512 sn_exp_avx512(__m512 x) {
    const __m512 one = _mm512_set1_ps(1);
    x = _mm512_max_ps(_mm512_set1_ps(SN_EXP_LOW), x);
    x = _mm512_min_ps(_mm512_set1_ps(SN_EXP_HIGH), x);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(SN_EXP_LOG2E), _mm512_set1_ps(SN_EXP_ROUND)),
           n = _mm512_sub_ps(t, _mm512_set1_ps(SN_EXP_ROUND));
    __m512i i = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_castps_si512(_mm512_set1_ps(SN_EXP_ROUND))), half = _mm512_srai_epi32(i, 1);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SN_EXP_LN2_HIGH), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SN_EXP_LN2_LOW), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(SN_EXP_C6), r, _mm512_set1_ps(SN_EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SN_EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SN_EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SN_EXP_C2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    __m512i bias = _mm512_set1_epi32(127);
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23)));
    return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(i, half), bias), 23)));
}
#endif

#endif
