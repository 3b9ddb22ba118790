/* Vectors whose 32-bit lanes are rows of a panel: sixteen with AVX-512, eight with AVX2. Only what matmul_quant_simd.h needs. */
#ifndef SN_OPS_MATMUL_MATMUL_QUANT_LANES_H
#define SN_OPS_MATMUL_MATMUL_QUANT_LANES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE int32_t word_at(const uint8_t *p) {
    int32_t w;
    memcpy(&w, p, 4);
    return w;
}

#ifdef __AVX512F__

enum { LANES = 16 };
typedef __m512i ivec;
typedef __m512 fvec;

INLINE ivec v_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void v_store(void *p, ivec v) { _mm512_storeu_si512(p, v); }
INLINE fvec v_loadf(const void *p) { return _mm512_loadu_ps(p); }
INLINE void v_storef(void *p, fvec v) { _mm512_storeu_ps(p, v); }
INLINE ivec v_word(const void *p) { return _mm512_set1_epi32(word_at(p)); }
INLINE fvec v_floats(const void *p) { return _mm512_castsi512_ps(v_word(p)); }
INLINE ivec v_set(int x) { return _mm512_set1_epi32(x); }
INLINE ivec v_bytes(int x) { return _mm512_set1_epi8((char)x); }
INLINE ivec v_and(ivec a, ivec b) { return _mm512_and_si512(a, b); }
INLINE ivec v_or(ivec a, ivec b) { return _mm512_or_si512(a, b); }
INLINE ivec v_xor(ivec a, ivec b) { return _mm512_xor_si512(a, b); }
INLINE ivec v_add(ivec a, ivec b) { return _mm512_add_epi32(a, b); }
INLINE ivec v_mul(ivec a, ivec b) { return _mm512_mullo_epi32(a, b); }
INLINE fvec v_float(ivec a) { return _mm512_cvtepi32_ps(a); }
INLINE fvec v_mulf(fvec a, fvec b) { return _mm512_mul_ps(a, b); }
INLINE fvec v_fma(fvec a, fvec b, fvec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE fvec v_zerof(void) { return _mm512_setzero_ps(); }
INLINE ivec v_zero(void) { return _mm512_setzero_si512(); }
INLINE fvec v_negate(fvec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
/* The f16 in the low half of each lane. */
INLINE fvec v_half(ivec a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
#define v_right(a, n) _mm512_srli_epi32((a), (unsigned)(n))
#define v_left(a, n) _mm512_slli_epi32((a), (unsigned)(n))
#define v_right_signed(a, n) _mm512_srai_epi32((a), (unsigned)(n))

/* Four bytes of 0 or 16 a lane from bits 4g .. 4g+3 of the lane's word. */
INLINE ivec v_fifth_bits(ivec words, int g) {
    const ivec spread = _mm512_add_epi8(_mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0), v_bytes(g / 2));
    return _mm512_maskz_set1_epi8(_mm512_test_epi8_mask(_mm512_shuffle_epi8(words, spread), v_set(g & 1 ? (int)0x80402010 : 0x08040201)),
                                  16);
}

/* The 32-bit word at p of each row. */
INLINE __m128i v_gather4(const uint8_t *p, size_t stride) {
    return _mm_setr_epi32(word_at(p), word_at(p + stride), word_at(p + 2 * stride), word_at(p + 3 * stride));
}
INLINE ivec v_gather(const uint8_t *p, size_t stride) { /* quicker than the gather instruction */
    ivec v = _mm512_castsi128_si512(v_gather4(p, stride));
    v = _mm512_inserti32x4(v, v_gather4(p + 4 * stride, stride), 1);
    v = _mm512_inserti32x4(v, v_gather4(p + 8 * stride, stride), 2);
    return _mm512_inserti32x4(v, v_gather4(p + 12 * stride, stride), 3);
}

INLINE ivec v_four_rows(const uint8_t *p, size_t stride) { /* 16 bytes of rows 0, 4, 8 and 12 */
    ivec v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 4 * stride)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 8 * stride)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 12 * stride)), 3);
}

/* 16 bytes at p of each row, transposed: o[i] holds the rows' i-th words. */
INLINE void v_transpose(const uint8_t *p, size_t stride, ivec o[4]) {
    ivec a = v_four_rows(p, stride), b = v_four_rows(p + stride, stride);
    ivec c = v_four_rows(p + 2 * stride, stride), d = v_four_rows(p + 3 * stride, stride);
    ivec ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    o[0] = _mm512_unpacklo_epi64(ab, cd);
    o[1] = _mm512_unpackhi_epi64(ab, cd);
    ab = _mm512_unpackhi_epi32(a, b), cd = _mm512_unpackhi_epi32(c, d);
    o[2] = _mm512_unpacklo_epi64(ab, cd);
    o[3] = _mm512_unpackhi_epi64(ab, cd);
}

#else

enum { LANES = 8 };
typedef __m256i ivec;
typedef __m256 fvec;

INLINE ivec v_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE void v_store(void *p, ivec v) { _mm256_storeu_si256(p, v); }
INLINE fvec v_loadf(const void *p) { return _mm256_loadu_ps(p); }
INLINE void v_storef(void *p, fvec v) { _mm256_storeu_ps(p, v); }
INLINE ivec v_word(const void *p) { return _mm256_set1_epi32(word_at(p)); }
INLINE fvec v_floats(const void *p) { return _mm256_castsi256_ps(v_word(p)); }
INLINE ivec v_set(int x) { return _mm256_set1_epi32(x); }
INLINE ivec v_bytes(int x) { return _mm256_set1_epi8((char)x); }
INLINE ivec v_and(ivec a, ivec b) { return _mm256_and_si256(a, b); }
INLINE ivec v_or(ivec a, ivec b) { return _mm256_or_si256(a, b); }
INLINE ivec v_xor(ivec a, ivec b) { return _mm256_xor_si256(a, b); }
INLINE ivec v_add(ivec a, ivec b) { return _mm256_add_epi32(a, b); }
INLINE ivec v_mul(ivec a, ivec b) { return _mm256_mullo_epi32(a, b); }
INLINE fvec v_float(ivec a) { return _mm256_cvtepi32_ps(a); }
INLINE fvec v_mulf(fvec a, fvec b) { return _mm256_mul_ps(a, b); }
INLINE fvec v_fma(fvec a, fvec b, fvec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE fvec v_zerof(void) { return _mm256_setzero_ps(); }
INLINE ivec v_zero(void) { return _mm256_setzero_si256(); }
INLINE fvec v_negate(fvec a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
INLINE fvec v_half(ivec a) {
    a = _mm256_packus_epi32(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)), _mm256_setzero_si256());
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(a, 0x08)));
}
#define v_right(a, n) _mm256_srli_epi32((a), (n))
#define v_left(a, n) _mm256_slli_epi32((a), (n))
#define v_right_signed(a, n) _mm256_srai_epi32((a), (n))

INLINE ivec v_fifth_bits(ivec words, int g) {
    const ivec spread =
        _mm256_add_epi8(_mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c), v_bytes(g / 2));
    const ivec bit = v_set(g & 1 ? (int)0x80402010 : 0x08040201);
    return v_and(_mm256_cmpeq_epi8(v_and(_mm256_shuffle_epi8(words, spread), bit), bit), v_bytes(16));
}

INLINE ivec v_gather(const uint8_t *p, size_t stride) {
    return _mm256_setr_epi32(word_at(p), word_at(p + stride), word_at(p + 2 * stride), word_at(p + 3 * stride), word_at(p + 4 * stride),
                             word_at(p + 5 * stride), word_at(p + 6 * stride), word_at(p + 7 * stride));
}

INLINE ivec v_two_rows(const uint8_t *p, size_t stride) { /* 16 bytes of rows 0 and 4 */
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                                   _mm_loadu_si128((const __m128i *)(p + 4 * stride)), 1);
}

INLINE void v_transpose(const uint8_t *p, size_t stride, ivec o[4]) {
    ivec a = v_two_rows(p, stride), b = v_two_rows(p + stride, stride);
    ivec c = v_two_rows(p + 2 * stride, stride), d = v_two_rows(p + 3 * stride, stride);
    ivec ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    o[0] = _mm256_unpacklo_epi64(ab, cd);
    o[1] = _mm256_unpackhi_epi64(ab, cd);
    ab = _mm256_unpackhi_epi32(a, b), cd = _mm256_unpackhi_epi32(c, d);
    o[2] = _mm256_unpacklo_epi64(ab, cd);
    o[3] = _mm256_unpackhi_epi64(ab, cd);
}

#endif

/* One step of a dot product: four codes of each lane's row times four codes of the token. Unsigned weight codes w.
 * v_dot_start gives the accumulator that goes on from `sum`; after at most v_dot_steps(largest code) steps v_dot_end gives the
 * new sum. */
#ifdef __AVX512VNNI__
enum { SIGNED_Q8 = 0 }; /* q8_0 codes are taken + 128 */
INLINE int v_dot_steps(int largest) { return (void)largest, 64; }
INLINE ivec v_dot(ivec acc, ivec w, ivec a) { return _mm512_dpbusd_epi32(acc, w, a); }
INLINE ivec v_dot_start(ivec sum) { return sum; }
INLINE ivec v_dot_end(ivec sum, ivec acc) { return (void)sum, acc; }
INLINE ivec v_magnitude(ivec w) { return w; } /* not used: nothing is signed */
INLINE ivec v_signed_like(ivec a, ivec w) { return (void)w, a; }
#else
enum { SIGNED_Q8 = 1 }; /* 255 * 127 * 2 does not fit 16 bits: |w| times a with the sign of w */
INLINE int v_dot_steps(int largest) { return largest <= 15 ? 8 : largest <= 31 ? 4 : largest <= 63 ? 2 : 1; }
INLINE ivec v_dot_start(ivec sum) { return (void)sum, v_zero(); }
#ifdef __AVX512F__
INLINE ivec v_dot(ivec acc, ivec w, ivec a) { return _mm512_add_epi16(acc, _mm512_maddubs_epi16(w, a)); }
INLINE ivec v_dot_end(ivec sum, ivec acc) { return v_add(sum, _mm512_madd_epi16(acc, _mm512_set1_epi16(1))); }
INLINE ivec v_magnitude(ivec w) { return _mm512_abs_epi8(w); }
INLINE ivec v_signed_like(ivec a, ivec w) { return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), v_zero(), a); }
#else
INLINE ivec v_dot(ivec acc, ivec w, ivec a) { return _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, a)); }
INLINE ivec v_dot_end(ivec sum, ivec acc) { return v_add(sum, _mm256_madd_epi16(acc, _mm256_set1_epi16(1))); }
INLINE ivec v_magnitude(ivec w) { return _mm256_abs_epi8(w); }
INLINE ivec v_signed_like(ivec a, ivec w) { return _mm256_sign_epi8(a, w); }
#endif
#endif

#endif
