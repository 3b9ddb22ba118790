/* Vectors of f32 in the widest form that the including file is compiled for, for the attention ops' SIMD kernels.
 *
 * Only for files whose name ends in _avx2.c or _avx512.c: sn_vf is 8 or 16 lanes. */
#ifndef SN_OPS_ATTENTION_MATH_H
#define SN_OPS_ATTENTION_MATH_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

#define SN_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)

typedef __m512 sn_vf;
typedef __m256i sn_vh; /* as many 16-bit values */
enum { SN_LANES = 16 };
SN_INLINE sn_vf vf_zero(void) { return _mm512_setzero_ps(); }
SN_INLINE sn_vf vf_set(float x) { return _mm512_set1_ps(x); }
SN_INLINE sn_vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
SN_INLINE void vf_store(float *p, sn_vf x) { _mm512_storeu_ps(p, x); }
SN_INLINE sn_vf vf_add(sn_vf a, sn_vf b) { return _mm512_add_ps(a, b); }
SN_INLINE sn_vf vf_sub(sn_vf a, sn_vf b) { return _mm512_sub_ps(a, b); }
SN_INLINE sn_vf vf_mul(sn_vf a, sn_vf b) { return _mm512_mul_ps(a, b); }
SN_INLINE sn_vf vf_fma(sn_vf a, sn_vf b, sn_vf c) { return _mm512_fmadd_ps(a, b, c); }
SN_INLINE sn_vf vf_max(sn_vf a, sn_vf b) { return _mm512_max_ps(a, b); }
SN_INLINE sn_vf vf_round(sn_vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SN_INLINE sn_vf vf_scale2(sn_vf a, sn_vf n) { return _mm512_scalef_ps(a, n); } /* a 2^n, n whole, -200 <= n */
SN_INLINE float vf_sum(sn_vf a) { return _mm512_reduce_add_ps(a); }
SN_INLINE float vf_top(sn_vf a) { return _mm512_reduce_max_ps(a); }
/* x in lanes from .. to - 1, y elsewhere; any whole numbers. */
SN_INLINE sn_vf vf_between(sn_vf x, sn_vf y, int from, int to) {
    from = from < 0 ? 0 : from > 16 ? 16 : from;
    to = to < 0 ? 0 : to > 16 ? 16 : to;
    return _mm512_mask_blend_ps((__mmask16)(((1u << to) - 1u) & ~((1u << from) - 1u)), y, x);
}

SN_INLINE sn_vh vh_load(const void *p) { return _mm256_loadu_si256(p); }
SN_INLINE void vh_store(void *p, sn_vh h) { _mm256_storeu_si256(p, h); }
SN_INLINE sn_vf vf_from_f16(sn_vh h) { return _mm512_cvtph_ps(h); }
SN_INLINE sn_vh vf_to_f16(sn_vf x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SN_INLINE sn_vf vf_from_bf16(sn_vh h) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
SN_INLINE sn_vh vf_to_bf16(sn_vf x) {
    __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}

SN_INLINE void vf_transpose(sn_vf r[16]) {
    sn_vf t[16], u[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) { /* u[i + j]: each 128-bit lane L holds column 4 L + j of rows i .. i + 3 */
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            u[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            u[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        sn_vf a = _mm512_shuffle_f32x4(u[j], u[4 + j], 0x88), b = _mm512_shuffle_f32x4(u[j], u[4 + j], 0xdd);
        sn_vf c = _mm512_shuffle_f32x4(u[8 + j], u[12 + j], 0x88), d = _mm512_shuffle_f32x4(u[8 + j], u[12 + j], 0xdd);
        r[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#else

typedef __m256 sn_vf;
typedef __m128i sn_vh;
enum { SN_LANES = 8 };
SN_INLINE sn_vf vf_zero(void) { return _mm256_setzero_ps(); }
SN_INLINE sn_vf vf_set(float x) { return _mm256_set1_ps(x); }
SN_INLINE sn_vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
SN_INLINE void vf_store(float *p, sn_vf x) { _mm256_storeu_ps(p, x); }
SN_INLINE sn_vf vf_add(sn_vf a, sn_vf b) { return _mm256_add_ps(a, b); }
SN_INLINE sn_vf vf_sub(sn_vf a, sn_vf b) { return _mm256_sub_ps(a, b); }
SN_INLINE sn_vf vf_mul(sn_vf a, sn_vf b) { return _mm256_mul_ps(a, b); }
SN_INLINE sn_vf vf_fma(sn_vf a, sn_vf b, sn_vf c) { return _mm256_fmadd_ps(a, b, c); }
SN_INLINE sn_vf vf_max(sn_vf a, sn_vf b) { return _mm256_max_ps(a, b); }
SN_INLINE sn_vf vf_round(sn_vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SN_INLINE sn_vf vf_scale2(sn_vf a, sn_vf n) { /* in two steps: 2^n may be below the smallest normal number */
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(whole, half);
    a = _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
SN_INLINE float vf_sum(sn_vf a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
SN_INLINE float vf_top(sn_vf a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
SN_INLINE sn_vf vf_between(sn_vf x, sn_vf y, int from, int to) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i outside = _mm256_cmpgt_epi32(_mm256_set1_epi32(from), lane);
    __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane);
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_andnot_si256(outside, below)));
}

SN_INLINE sn_vh vh_load(const void *p) { return _mm_loadu_si128(p); }
SN_INLINE void vh_store(void *p, sn_vh h) { _mm_storeu_si128(p, h); }
SN_INLINE sn_vf vf_from_f16(sn_vh h) { return _mm256_cvtph_ps(h); }
SN_INLINE sn_vh vf_to_f16(sn_vf x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SN_INLINE sn_vf vf_from_bf16(sn_vh h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
SN_INLINE sn_vh vf_to_bf16(sn_vf x) {
    __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    r = _mm256_srli_epi32(_mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}

SN_INLINE void vf_transpose(sn_vf r[8]) {
    sn_vf t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) { /* u[i + j]: each 128-bit lane L holds column 4 L + j of rows i .. i + 3 */
            __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);
            u[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            u[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        r[j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x20);
        r[4 + j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x31);
    }
}

#endif

/* SN_LANES values at p of a float form, widened. */
SN_INLINE sn_vf vf_load_form(sn_dtype form, const void *p) {
    if (form == SN_F32) return vf_load(p);
    return form == SN_BF16 ? vf_from_bf16(vh_load(p)) : vf_from_f16(vh_load(p));
}

/* The same, rounded to nearest even. */
SN_INLINE void vf_store_form(sn_dtype form, void *p, sn_vf x) {
    if (form == SN_F32) vf_store(p, x);
    else vh_store(p, form == SN_BF16 ? vf_to_bf16(x) : vf_to_f16(x));
}

SN_INLINE size_t form_bytes(sn_dtype form) { return form == SN_F32 ? 4 : 2; }
SN_INLINE const void *form_at(sn_dtype form, const void *p, int64_t i) { return (const char *)p + (size_t)i * form_bytes(form); }

/* The first n < SN_LANES values; zeros in the other lanes. */
SN_INLINE sn_vf vf_load_part(sn_dtype form, const void *p, int n) {
    _Alignas(64) char buffer[SN_LANES * 4] = {0};
    memcpy(buffer, p, (size_t)n * form_bytes(form));
    return vf_load_form(form, buffer);
}
SN_INLINE void vf_store_part(sn_dtype form, void *p, sn_vf x, int n) {
    _Alignas(64) char buffer[SN_LANES * 4];
    vf_store_form(form, buffer, x);
    memcpy(p, buffer, (size_t)n * form_bytes(form));
}

/* 2^x for x <= 128, relative error below 1e-7 (polynomial of degree 6 over [-1/2, 1/2], fitted in the relative error);
 * 0 below -150 and for -infinity, exactly 1 for 0; a NaN stays one. */
SN_INLINE sn_vf vf_exp2(sn_vf x) {
    x = vf_max(vf_set(-200.0f), x); /* the second operand is returned when either is a NaN */
    sn_vf n = vf_round(x), f = vf_sub(x, n);
    sn_vf p = vf_set(1.537070482e-4f);
    p = vf_fma(p, f, vf_set(1.339984829e-3f));
    p = vf_fma(p, f, vf_set(9.618373251e-3f));
    p = vf_fma(p, f, vf_set(5.550329035e-2f));
    p = vf_fma(p, f, vf_set(2.402264846e-1f));
    p = vf_fma(p, f, vf_set(6.931472056e-1f));
    p = vf_fma(p, f, vf_set(1.0f));
    return vf_scale2(p, n);
}

#endif
