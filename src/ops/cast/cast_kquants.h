/* Decoding of k-quants for the SIMD casts: compiled by cast_avx2.c and cast_avx512.c, each with its own instructions. */
#ifndef SN_OPS_CAST_CAST_KQUANTS_H
#define SN_OPS_CAST_CAST_KQUANTS_H

#include <immintrin.h>

#include "tensor/blocks.h"
#include "tensor/convert.h"

static inline __m256i bytes_at(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* (v >> shift) & mask in each byte, then << up. */
static inline __m256i bits(__m256i v, int shift, int mask, int up) {
    return _mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8((char)mask)), up);
}

/* The 32 codes of part i of 8. */
static inline __m256i kquant_codes(sn_dtype t, const uint8_t *b, int i) {
    switch (t) {
    case SN_Q2_K: return bits(bytes_at(b + 16 + i / 4 * 32), i % 4 * 2, 3, 0);
    case SN_Q3_K: return _mm256_or_si256(bits(bytes_at(b + 32 + i / 4 * 32), i % 4 * 2, 3, 0), bits(bytes_at(b), i, 1, 2));
    case SN_Q4_K: return bits(bytes_at(b + 16 + i / 2 * 32), i % 2 * 4, 15, 0);
    case SN_Q5_K: return _mm256_or_si256(bits(bytes_at(b + 48 + i / 2 * 32), i % 2 * 4, 15, 0), bits(bytes_at(b + 16), i, 1, 4));
    default:
        return _mm256_or_si256(bits(bytes_at(b + i / 4 * 64 + i % 2 * 32), i % 4 / 2 * 4, 15, 0),
                               bits(bytes_at(b + 128 + i / 4 * 32), i % 4 * 2, 3, 4));
    }
}

static inline __attribute__((always_inline)) void decode_kquant(sn_dtype t, const uint8_t *b, int64_t n, float *out) {
    const int bytes = sn_dtypes[t].bytes, offset = sn_block_offset(t), group = sn_block_group(t);
    for (int64_t at = 0; at < n; at += 256, b += bytes) {
        sn_block256 s;
        float scale[16], least[16];
        sn_block256_scales(t, b, &s);
        for (int g = 0; g < 16; g++) {
            scale[g] = s.d * (float)s.scale[g];
            least[g] = s.dmin * (float)s.min[g];
        }
        for (int i = 0; i < 8; i++) {
            const __m256i codes = _mm256_sub_epi8(kquant_codes(t, b, i), _mm256_set1_epi8((char)offset));
            const __m128i half[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
            for (int e = 0; e < 4; e++) { /* eight elements */
                const int g = (32 * i + 8 * e) / group;
                __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(e & 1 ? _mm_srli_si128(half[e / 2], 8) : half[e / 2]));
                v = _mm256_sub_ps(_mm256_mul_ps(_mm256_set1_ps(scale[g]), v), _mm256_set1_ps(least[g]));
                _mm256_storeu_ps(out + at + 32 * i + 8 * e, v);
            }
        }
    }
}

static void decode_q2_k(const void *row, int64_t n, float *out) { decode_kquant(SN_Q2_K, row, n, out); }
static void decode_q3_k(const void *row, int64_t n, float *out) { decode_kquant(SN_Q3_K, row, n, out); }
static void decode_q4_k(const void *row, int64_t n, float *out) { decode_kquant(SN_Q4_K, row, n, out); }
static void decode_q5_k(const void *row, int64_t n, float *out) { decode_kquant(SN_Q5_K, row, n, out); }
static void decode_q6_k(const void *row, int64_t n, float *out) { decode_kquant(SN_Q6_K, row, n, out); }

#define SN_KQUANT_DECODERS \
    [SN_Q2_K] = decode_q2_k, [SN_Q3_K] = decode_q3_k, [SN_Q4_K] = decode_q4_k, [SN_Q5_K] = decode_q5_k, [SN_Q6_K] = decode_q6_k

#endif
