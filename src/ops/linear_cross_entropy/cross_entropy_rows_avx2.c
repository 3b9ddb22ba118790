#include "ops/linear_cross_entropy/cross_entropy_rows.h"

#include <immintrin.h>

#include "ops/math/vector_math.h"

static float row_max(const float *x, int64_t n) {
    __m256 m[4];
    for (int j = 0; j < 4; j++) m[j] = _mm256_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; j++) m[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * j), m[j]);
    float lane[8], most = -INFINITY;
    _mm256_storeu_ps(lane, _mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
    for (int j = 0; j < 8; j++) most = lane[j] > most ? lane[j] : most;
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static double sum_exp(const float *x, int64_t n, float max) {
    __m256d sum[4]; /* four lanes each */
    for (int j = 0; j < 4; j++) sum[j] = _mm256_setzero_pd();
    __m256 m = _mm256_set1_ps(max);
    double lane[16];
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 2; j++) {
            __m256 e = sn_exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * j), m));
            sum[2 * j] = _mm256_add_pd(sum[2 * j], _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
            sum[2 * j + 1] = _mm256_add_pd(sum[2 * j + 1], _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
        }
    for (int j = 0; j < 4; j++) _mm256_storeu_pd(lane + 4 * j, sum[j]);
    for (int l = 0; i < n; i++, l++) lane[l] += (double)sn_exp_f32(x[i] - max);
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    return lane[0];
}

static void softmax(float *x, int64_t n, float max, float factor, bool bf16) {
    __m256 m = _mm256_set1_ps(max), f = _mm256_set1_ps(factor);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 e = _mm256_mul_ps(sn_exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(x + i), m)), f);
        if (bf16) {
            __m256i u = _mm256_castps_si256(e), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
            __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
            rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(e, e, _CMP_UNORD_Q))), 16);
            _mm_storeu_si128((__m128i *)((uint16_t *)x + i),
                             _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
        } else {
            _mm256_storeu_ps(x + i, e);
        }
    }
    for (; i < n; i++) {
        float e = sn_exp_f32(x[i] - max) * factor;
        if (bf16) {
            uint16_t h = sn_f32_to_bf16(e);
            memcpy((char *)x + 2 * i, &h, 2);
        } else {
            x[i] = e;
        }
    }
}

const sn_cross_entropy_rows sn_cross_entropy_rows_avx2 = {row_max, sum_exp, softmax};
