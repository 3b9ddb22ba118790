/* Conversions eight elements at a time. */
#include <immintrin.h>

#include "base/cpu.h"
#include "ops/cast/cast.h"
#include "ops/cast/cast_blocks.h"
#include "ops/cast/cast_kquants.h"
#include "ops/cast/convert_isa.h"

static void decode_f16(const void *row, int64_t n, float *out) {
    const uint16_t *h = row;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
    for (; i < n; i++) out[i] = sn_f16_to_f32(h[i]);
}

static void encode_f16(const float *row, int64_t n, void *out) {
    uint16_t *h = out;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(h + i), _mm256_cvtps_ph(_mm256_loadu_ps(row + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) h[i] = sn_f32_to_f16(row[i]);
}

static void decode_bf16(const void *row, int64_t n, float *out) {
    const uint16_t *h = row;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(h + i)));
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_slli_epi32(u, 16)));
    }
    for (; i < n; i++) out[i] = sn_bf16_to_f32(h[i]);
}

/* The rounded upper halves, each in a 32-bit lane. */
static inline __m256i round_bf16(__m256 x) {
    __m256i u = _mm256_castps_si256(x), upper = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

static void encode_bf16(const float *row, int64_t n, void *out) {
    uint16_t *h = out;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i both = _mm256_packus_epi32(round_bf16(_mm256_loadu_ps(row + i)), round_bf16(_mm256_loadu_ps(row + i + 8)));
        _mm256_storeu_si256((__m256i *)(h + i), _mm256_permute4x64_epi64(both, 0xd8));
    }
    for (; i < n; i++) h[i] = sn_f32_to_bf16(row[i]);
}

const sn_convert_isa sn_convert_avx2 = {.decode = {[SN_F16] = decode_f16, [SN_BF16] = decode_bf16, SN_BLOCK_DECODERS, SN_KQUANT_DECODERS},
                                        .encode = {[SN_F16] = encode_f16, [SN_BF16] = encode_bf16, SN_BLOCK_ENCODERS}};

static void run(const sn_call *c) { sn_cast_run(c, &sn_convert_avx2); }

const sn_kernel sn_cast_avx2[] = {{"avx2", SN_DEVICE_CPU, SN_CPU_AVX2, sn_cast_takes, NULL, run}, {0}};
