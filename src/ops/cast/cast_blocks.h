/* Block formats for the SIMD casts: compiled by cast_avx2.c and cast_avx512.c, each with its own instructions. */
#ifndef SN_OPS_CAST_CAST_BLOCKS_H
#define SN_OPS_CAST_CAST_BLOCKS_H

#include <immintrin.h>

#include "tensor/convert.h"

/* 16 bytes of nibbles to 32 codes: the low nibbles, then the high ones. */
static inline __m256i nibbles(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const __m128i *)p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}

/* 32 bits to 32 bytes of 0 or 16. */
static inline __m256i fifth_bits(const uint8_t *p) {
    int32_t bits;
    memcpy(&bits, p, 4);
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i b = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(b, bit), _mm256_set1_epi8(16));
}

static inline float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}

/* out[32] = d * code (+ m), codes signed bytes. */
static inline void store32(__m256i codes, float d, bool has_min, float m, float *out) {
#ifdef __AVX512F__
    for (int i = 0; i < 2; i++) {
        __m128i sixteen = i ? _mm256_extracti128_si256(codes, 1) : _mm256_castsi256_si128(codes);
        __m512 v = _mm512_mul_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen)));
        _mm512_storeu_ps(out + 16 * i, has_min ? _mm512_add_ps(v, _mm512_set1_ps(m)) : v);
    }
#else
    __m128i half[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
    for (int i = 0; i < 4; i++) {
        __m128i eight = i & 1 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
        __m256 v = _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
        _mm256_storeu_ps(out + 8 * i, has_min ? _mm256_add_ps(v, _mm256_set1_ps(m)) : v);
    }
#endif
}

static void decode_q4_0(const void *row, int64_t n, float *out) {
    const uint8_t *b = row;
    for (int64_t i = 0; i < n; i += 32, b += 18)
        store32(_mm256_sub_epi8(nibbles(b + 2), _mm256_set1_epi8(8)), half_at(b), false, 0, out + i);
}

static void decode_q4_1(const void *row, int64_t n, float *out) {
    const uint8_t *b = row;
    for (int64_t i = 0; i < n; i += 32, b += 20) store32(nibbles(b + 4), half_at(b), true, half_at(b + 2), out + i);
}

static void decode_q5_0(const void *row, int64_t n, float *out) {
    const uint8_t *b = row;
    for (int64_t i = 0; i < n; i += 32, b += 22) {
        __m256i codes = _mm256_or_si256(nibbles(b + 6), fifth_bits(b + 2));
        store32(_mm256_sub_epi8(codes, _mm256_set1_epi8(16)), half_at(b), false, 0, out + i);
    }
}

static void decode_q5_1(const void *row, int64_t n, float *out) {
    const uint8_t *b = row;
    for (int64_t i = 0; i < n; i += 32, b += 24)
        store32(_mm256_or_si256(nibbles(b + 8), fifth_bits(b + 4)), half_at(b), true, half_at(b + 2), out + i);
}

static void decode_q8_0(const void *row, int64_t n, float *out) {
    const uint8_t *b = row;
    for (int64_t i = 0; i < n; i += 32, b += 34) store32(_mm256_loadu_si256((const __m256i *)(b + 2)), half_at(b), false, 0, out + i);
}

static void decode_q8_1(const void *row, int64_t n, float *out) {
    const uint8_t *b = row;
    for (int64_t i = 0; i < n; i += 32, b += 36) store32(_mm256_loadu_si256((const __m256i *)(b + 4)), half_at(b), false, 0, out + i);
}

/* Eight values in -127 .. 127, halves rounded away from zero; a NaN gives 0. */
static inline __m256i round_away(__m256 v) {
    v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-127)), _mm256_set1_ps(127));
    __m256 whole = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC), rest = _mm256_sub_ps(v, whole);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 step = _mm256_and_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, rest), _mm256_set1_ps(0.5f), _CMP_GE_OQ), _mm256_set1_ps(1));
    return _mm256_cvttps_epi32(_mm256_add_ps(whole, _mm256_or_ps(step, _mm256_and_ps(sign, v))));
}

static inline int sum_lanes(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

static inline float max_lanes(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline void encode_q8(const float *x, bool with_sum, uint8_t *out) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 v[4], largest = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        largest = _mm256_max_ps(_mm256_andnot_ps(sign, v[i]), largest); /* a NaN leaves `largest` */
    }
    float d = max_lanes(largest) / 127, inverse = d != 0 ? 1 / d : 0;
    __m256i q[4], sum = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        q[i] = round_away(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
        sum = _mm256_add_epi32(sum, q[i]);
    }
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    uint16_t h = _cvtss_sh(d, _MM_FROUND_TO_NEAREST_INT);
    memcpy(out, &h, 2);
    if (with_sum) {
        h = _cvtss_sh((float)sum_lanes(sum) * d, _MM_FROUND_TO_NEAREST_INT);
        memcpy(out + 2, &h, 2);
    }
    _mm256_storeu_si256((__m256i *)(out + (with_sum ? 4 : 2)), bytes);
}

static void encode_q8_0(const float *row, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += 32) encode_q8(row + i, false, (uint8_t *)out + i / 32 * 34);
}

static void encode_q8_1(const float *row, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += 32) encode_q8(row + i, true, (uint8_t *)out + i / 32 * 36);
}

/* q8_k: the element of largest magnitude, the first of several, becomes -127; nearest even; sums of 16 codes follow. */
static inline void encode_q8_k_block(const float *x, uint8_t *out) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < 256; i += 8) largest = _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)), largest);
    float m = max_lanes(largest), extreme = 0;
    for (int i = 0; i < 256 && m != 0; i += 8) {
        int hit = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)), _mm256_set1_ps(m), _CMP_EQ_OQ));
        if (hit) {
            extreme = x[i + __builtin_ctz((unsigned)hit)];
            break;
        }
    }
    float inverse = m != 0 ? -127 / extreme : 0, d = m != 0 ? 1 / inverse : 0;
    memcpy(out, &d, 4);
    for (int g = 0; g < 16; g++) {
        __m256i q[2];
        for (int i = 0; i < 2; i++) {
            __m256 v = _mm256_mul_ps(_mm256_set1_ps(inverse), _mm256_loadu_ps(x + 16 * g + 8 * i));
            v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
            q[i] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-127)), _mm256_set1_ps(127)));
        }
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), 0xd8);
        __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(out + 4 + 16 * g), bytes);
        int16_t sum = (int16_t)sum_lanes(_mm256_add_epi32(q[0], q[1]));
        memcpy(out + 260 + 2 * g, &sum, 2);
    }
}

static void encode_q8_k(const float *row, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += 256) encode_q8_k_block(row + i, (uint8_t *)out + i / 256 * 292);
}

#define SN_BLOCK_DECODERS                                                                                                        \
    [SN_Q4_0] = decode_q4_0, [SN_Q4_1] = decode_q4_1, [SN_Q5_0] = decode_q5_0, [SN_Q5_1] = decode_q5_1, [SN_Q8_0] = decode_q8_0, \
    [SN_Q8_1] = decode_q8_1
#define SN_BLOCK_ENCODERS [SN_Q8_0] = encode_q8_0, [SN_Q8_1] = encode_q8_1, [SN_Q8_K] = encode_q8_k

#endif
