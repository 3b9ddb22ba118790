#include "ops/linear_cross_entropy/cross_entropy_rows.h"

#include <immintrin.h>

#include "ops/math/vector_math.h"

static inline __mmask16 mask_of(int64_t left) { return (__mmask16)(left >= 16 ? 0xffff : (1 << left) - 1); }

static float row_max(const float *x, int64_t n) {
    __m512 m[4];
    for (int j = 0; j < 4; j++) m[j] = _mm512_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; j++) m[j] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * j), m[j]);
    for (; i < n; i += 16) m[0] = _mm512_mask_max_ps(m[0], mask_of(n - i), _mm512_maskz_loadu_ps(mask_of(n - i), x + i), m[0]);
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3])));
}

static double sum_exp(const float *x, int64_t n, float max) {
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd(); /* lanes 0-7 and 8-15 */
    __m512 m = _mm512_set1_ps(max);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = mask_of(n - i);
        __m512 e = _mm512_maskz_mov_ps(mask, sn_exp_avx512(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), m)));
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(e)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1)));
    }
    low = _mm512_add_pd(low, high);
    __m256d q = _mm256_add_pd(_mm512_castpd512_pd256(low), _mm512_extractf64x4_pd(low, 1));
    __m128d h = _mm_add_pd(_mm256_castpd256_pd128(q), _mm256_extractf128_pd(q, 1));
    return _mm_cvtsd_f64(h) + _mm_cvtsd_f64(_mm_unpackhi_pd(h, h));
}

static void softmax(float *x, int64_t n, float max, float factor, bool bf16) {
    __m512 m = _mm512_set1_ps(max), f = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = mask_of(n - i);
        __m512 e = _mm512_mul_ps(sn_exp_avx512(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), m)), f);
        if (bf16) {
            __m512i u = _mm512_castps_si512(e), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
            __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(e, e, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
            _mm256_mask_storeu_epi16((uint16_t *)x + i, mask, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
        } else {
            _mm512_mask_storeu_ps(x + i, mask, e);
        }
    }
}

const sn_cross_entropy_rows sn_cross_entropy_rows_avx512 = {row_max, sum_exp, softmax};
