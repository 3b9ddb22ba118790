/* Philox words and stochastic rounding in blocks that become vectors. */
#ifndef SN_OPS_MATH_RANDOM_H
#define SN_OPS_MATH_RANDOM_H

#include "base/rng.h"
#include "ops/math/rows.h"

enum { SN_RANDOM_BLOCK = 16 }; /* counters that are worked on at a time */

/* What a run of random words is drawn by: word 4 j + l of a run is word l of Philox(key, counter), where j stands in the
 * counter's places `low` and `high` and c[] holds the other places. */
typedef struct sn_random {
    uint32_t key[2];
    uint32_t c[4];
    int low;  /* place of the low 32 bits of the running number: 2 or 3 */
    int high; /* place of its high 32 bits; -1: they are 0 */
} sn_random;

/* The Philox of SN_RANDOM_BLOCK counters abreast, place by place in c; the words of c's column l go to to[4 l ..]. In the SIMD
 * variants column l stands for another counter of the block (sn_random_column[l]), so that the words come out in order. */
#if defined(__AVX512F__)
static const uint32_t sn_random_column[SN_RANDOM_BLOCK] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};

static inline void sn_multiply_avx512(__m512i a, __m512i by, __m512i *high, __m512i *low) {
    const __m512i even = _mm512_mul_epu32(a, by), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), by);
    *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    *low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

static inline void sn_philox_block(uint32_t c[4][SN_RANDOM_BLOCK], uint32_t k0, uint32_t k1, uint32_t *to) {
    const __m512i m0 = _mm512_set1_epi32((int)0xD2511F53u), m1 = _mm512_set1_epi32((int)0xCD9E8D57u);
    __m512i v[4], h0, l0, h1, l1;
    for (int place = 0; place < 4; place++) v[place] = _mm512_loadu_si512(c[place]);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        sn_multiply_avx512(v[0], m0, &h0, &l0);
        sn_multiply_avx512(v[2], m1, &h1, &l1);
        v[0] = _mm512_xor_si512(_mm512_xor_si512(h1, v[1]), _mm512_set1_epi32((int)k0));
        v[2] = _mm512_xor_si512(_mm512_xor_si512(h0, v[3]), _mm512_set1_epi32((int)k1));
        v[1] = l1;
        v[3] = l0;
    }
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i d = _mm512_unpacklo_epi32(v[2], v[3]), e = _mm512_unpackhi_epi32(v[2], v[3]);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi64(a, d));
    _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi64(a, d));
    _mm512_storeu_si512(to + 32, _mm512_unpacklo_epi64(b, e));
    _mm512_storeu_si512(to + 48, _mm512_unpackhi_epi64(b, e));
}
#elif defined(__AVX2__)
static const uint32_t sn_random_column[SN_RANDOM_BLOCK] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};

static inline void sn_multiply_avx2(__m256i a, __m256i by, __m256i *high, __m256i *low) {
    const __m256i even = _mm256_mul_epu32(a, by), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), by);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

static inline void sn_philox_block(uint32_t c[4][SN_RANDOM_BLOCK], uint32_t key0, uint32_t key1, uint32_t *to) {
    const __m256i m0 = _mm256_set1_epi32((int)0xD2511F53u), m1 = _mm256_set1_epi32((int)0xCD9E8D57u);
    for (int half = 0; half < SN_RANDOM_BLOCK; half += 8, to += 32) {
        uint32_t k0 = key0, k1 = key1;
        __m256i v[4], h0, l0, h1, l1;
        for (int place = 0; place < 4; place++) v[place] = _mm256_loadu_si256((const __m256i *)&c[place][half]);
        for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            sn_multiply_avx2(v[0], m0, &h0, &l0);
            sn_multiply_avx2(v[2], m1, &h1, &l1);
            v[0] = _mm256_xor_si256(_mm256_xor_si256(h1, v[1]), _mm256_set1_epi32((int)k0));
            v[2] = _mm256_xor_si256(_mm256_xor_si256(h0, v[3]), _mm256_set1_epi32((int)k1));
            v[1] = l1;
            v[3] = l0;
        }
        const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
        const __m256i d = _mm256_unpacklo_epi32(v[2], v[3]), e = _mm256_unpackhi_epi32(v[2], v[3]);
        _mm256_storeu_si256((__m256i *)to, _mm256_unpacklo_epi64(a, d));
        _mm256_storeu_si256((__m256i *)(to + 8), _mm256_unpackhi_epi64(a, d));
        _mm256_storeu_si256((__m256i *)(to + 16), _mm256_unpacklo_epi64(b, e));
        _mm256_storeu_si256((__m256i *)(to + 24), _mm256_unpackhi_epi64(b, e));
    }
}
#else
static const uint32_t sn_random_column[SN_RANDOM_BLOCK] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static inline void sn_philox_block(uint32_t c[4][SN_RANDOM_BLOCK], uint32_t k0, uint32_t k1, uint32_t *to) {
    for (int l = 0; l < SN_RANDOM_BLOCK; l++) {
        const sn_rng4 r = sn_philox(k0, k1, c[0][l], c[1][l], c[2][l], c[3][l]);
        memcpy(to + 4 * l, r.v, sizeof r.v);
    }
}
#endif

/* Words first .. first + n - 1 (n <= SN_PIECE). `words` has room for SN_PIECE + 8 * SN_RANDOM_BLOCK; returns where the first is. */
static inline const uint32_t *sn_random_words(const sn_random *s, int64_t first, int64_t n, uint32_t *words) {
    const int64_t j0 = first / 4 / SN_RANDOM_BLOCK * SN_RANDOM_BLOCK, j1 = (first + n + 3) / 4; /* no carry within a block */
    uint32_t c[4][SN_RANDOM_BLOCK];
    for (int place = 0; place < 4; place++)
        for (int l = 0; l < SN_RANDOM_BLOCK; l++) c[place][l] = s->c[place];
    for (int64_t j = j0; j < j1; j += SN_RANDOM_BLOCK) {
        uint32_t *low = c[s->low], *high = s->high >= 0 ? c[s->high] : NULL;
        for (int l = 0; l < SN_RANDOM_BLOCK; l++) low[l] = (uint32_t)j + sn_random_column[l];
        for (int l = 0; high && l < SN_RANDOM_BLOCK; l++) high[l] = (uint32_t)((uint64_t)j >> 32);
        sn_philox_block(c, s->key[0], s->key[1], words + (j - j0) * 4);
    }
    return words + (first - j0 * 4);
}

/* bf16 by stochastic rounding: the upper 16 bits of a random word are added below the kept bits, then the rest is cut off.
 * The expected value is x. A NaN stays a (quiet) NaN. */
static inline void sn_store_stochastic_bf16(const float *x, const uint32_t *words, int64_t n, uint16_t *to) {
    SN_EACH(i, n, uint32_t u = sn_f32_bits(x[i]); uint32_t nan = u >> 16 | 0x40; uint32_t rounded = (u + (words[i] >> 16)) >> 16;
            to[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded););
}

#endif
