/* Conversions sixteen elements at a time; the last few through masks. */
#include <immintrin.h>

#include "base/cpu.h"
#include "ops/cast/cast.h"
#include "ops/cast/cast_blocks.h"
#include "ops/cast/cast_kquants.h"
#include "ops/cast/convert_isa.h"

static inline __mmask16 lanes(int64_t left) { return (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1); }

static void decode_f16(const void *row, int64_t n, float *out) {
    const uint16_t *h = row;
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        _mm512_mask_storeu_ps(out + i, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, h + i)));
    }
}

static void encode_f16(const float *row, int64_t n, void *out) {
    uint16_t *h = out;
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        _mm256_mask_storeu_epi16(h + i, m, _mm512_cvtps_ph(_mm512_maskz_loadu_ps(m, row + i), _MM_FROUND_TO_NEAREST_INT));
    }
}

static void decode_bf16(const void *row, int64_t n, float *out) {
    const uint16_t *h = row;
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        __m512i u = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, h + i)), 16);
        _mm512_mask_storeu_ps(out + i, m, _mm512_castsi512_ps(u));
    }
}

static void encode_bf16(const float *row, int64_t n, void *out) {
    uint16_t *h = out;
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 m = lanes(n - i);
        __m512 x = _mm512_maskz_loadu_ps(m, row + i);
        __m512i u = _mm512_castps_si512(x), upper = _mm512_srli_epi32(u, 16);
        __m512i bias = _mm512_add_epi32(_mm512_and_si512(upper, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
        __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
        rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), upper, _mm512_set1_epi32(0x40)); /* quiet NaN */
        _mm256_mask_storeu_epi16(h + i, m, _mm512_cvtepi32_epi16(rounded));
    }
}

const sn_convert_isa sn_convert_avx512 = {.decode = {[SN_F16] = decode_f16, [SN_BF16] = decode_bf16, SN_BLOCK_DECODERS, SN_KQUANT_DECODERS},
                                          .encode = {[SN_F16] = encode_f16, [SN_BF16] = encode_bf16, SN_BLOCK_ENCODERS}};

static void run(const sn_call *c) { sn_cast_run(c, &sn_convert_avx512); }

const sn_kernel sn_cast_avx512[] = {{"avx512", SN_DEVICE_CPU, SN_CPU_AVX512, sn_cast_takes, NULL, run}, {0}};
