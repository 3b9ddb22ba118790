/* AVX-512: tiles of 12 x 32, 24 accumulators. */
#include "ops/gemm/gemm_avx512_tile.h"

#include <string.h>

#include "tensor/convert.h"

enum { FETCH_AHEAD = 2048 /* bytes */, LONG_ROW = 2048 /* k */, LONG_ROWS = 4 };

INLINE __m512 step_f32(__m512 acc, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, acc); }

void sn_gemm_avx512_tile(int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh,
                         const float *bias) {
    tile_any(step_f32, steps, a, b, c, ldc, m, n, fresh, bias);
}

/* 16 values of a 16-bit form, widened. */
INLINE __m512 widen(sn_dtype form, __m256i h) {
    return form == SN_BF16 ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)) : _mm512_cvtph_ps(h);
}

/* Stores a vector of up to 16 cells of a panel row, of which `width` belong to it. */
INLINE void put(uint32_t *out, int width, __m512i v) {
    if (width >= 16) {
        _mm512_storeu_si512(out, v);
    } else { /* 12 */
        _mm256_storeu_si256((__m256i *)out, _mm512_castsi512_si256(v));
        _mm_storeu_si128((__m128i *)(out + 8), _mm512_extracti32x4_epi32(v, 2));
    }
}

/* Emits one transposed vector of 4-byte units: one f32, or two 16-bit values that become a pair or two cells. */
INLINE void emit(const sn_gemm_pack *p, int width, __m512i unit, uint32_t *out) {
    if (p->form == SN_F32 || p->pairs) {
        put(out, width, unit);
    } else if (p->form == SN_BF16) {
        put(out, width, _mm512_slli_epi32(unit, 16));
        put(out + p->width, width, _mm512_and_si512(unit, _mm512_set1_epi32((int)0xffff0000)));
    } else {
        put(out, width, _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(unit))));
        put(out + p->width, width, _mm512_castps_si512(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(unit, 16)))));
    }
}

/* Columns [c, c + width) of a panel whose stored rows are its columns: 4 units (16 bytes) of up to 16 rows at a time. Four 128-bit pieces
 * make a register, so that one 4 x 4 transposition within lanes gives 4 vectors of 16 columns. */
INLINE void pack_transposed(const sn_gemm_pack *p, int c, int width, int64_t units, uint32_t *out) {
    int per_unit = p->form == SN_F32 ? 1 : 2, cells = p->pairs ? 1 : per_unit; /* values and cells of a unit */
    const char *row[16];
    for (int i = 0; i < 16; i++) { /* beyond the last column: that column again */
        int column = c + i < p->valid ? c + i : p->valid - 1;
        row[i] = (const char *)p->from + column * p->ld * (p->form == SN_F32 ? 4 : 2);
    }
    uint32_t *to = out + c;
    for (int64_t u = 0; u + 4 <= units; u += 4) {
        __m512i z[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            z[r] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(row[r] + 4 * u)));
            z[r] = _mm512_inserti32x4(z[r], _mm_loadu_si128((const __m128i *)(row[r + 4] + 4 * u)), 1);
            z[r] = _mm512_inserti32x4(z[r], _mm_loadu_si128((const __m128i *)(row[r + 8] + 4 * u)), 2);
            if (width > 12) z[r] = _mm512_inserti32x4(z[r], _mm_loadu_si128((const __m128i *)(row[r + 12] + 4 * u)), 3);
        }
        __m512i t0 = _mm512_unpacklo_epi32(z[0], z[1]), t1 = _mm512_unpackhi_epi32(z[0], z[1]);
        __m512i t2 = _mm512_unpacklo_epi32(z[2], z[3]), t3 = _mm512_unpackhi_epi32(z[2], z[3]);
        int stride = cells * p->width;
        emit(p, width, _mm512_unpacklo_epi64(t0, t2), to);
        emit(p, width, _mm512_unpackhi_epi64(t0, t2), to + stride);
        emit(p, width, _mm512_unpacklo_epi64(t1, t3), to + 2 * stride);
        emit(p, width, _mm512_unpackhi_epi64(t1, t3), to + 3 * stride);
        to += 4 * stride;
    }
}

/* 16 values at h of which `mask` exist. */
INLINE __m512i load_row(sn_dtype form, const void *row, int64_t at, __mmask16 mask) {
    if (form == SN_F32) return _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, (const float *)row + at));
    return _mm512_castps_si512(widen(form, _mm256_maskz_loadu_epi16(mask, (const uint16_t *)row + at)));
}

INLINE __mmask16 valid_mask(const sn_gemm_pack *p, int c) {
    int left = p->valid - c;
    return (__mmask16)(left >= 16 ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
}

/* Stored rows run over k: each is copied, widened or interleaved with the next. */
INLINE void pack_rows(const sn_gemm_pack *p, uint32_t *out) {
    int step = p->width < 16 ? p->width : 16;
    for (int64_t k = 0; k < p->k; k += p->pairs ? 2 : 1) {
        for (int c = 0; c < p->width; c += step) {
            __mmask16 mask = valid_mask(p, c);
            __m512i v;
            if (p->pairs) {
                const uint16_t *h = (const uint16_t *)p->from + k * p->ld + c;
                v = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, h));
                if (k + 1 < p->k)
                    v = _mm512_or_si512(v, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, h + p->ld)), 16));
            } else {
                v = load_row(p->form, p->from, k * p->ld + c, mask);
            }
            put(out + c, step, v);
        }
        out += p->width;
    }
}

void sn_gemm_avx512_pack(const sn_gemm_pack *p, uint32_t *out) {
    if (p->k_rows) {
        if (p->form == SN_F32) pack_rows(&(sn_gemm_pack){p->from, p->ld, SN_F32, true, false, p->width, p->valid, p->k}, out);
        else pack_rows(p, out);
        return;
    }
    int64_t per_unit = p->form == SN_F32 ? 1 : 2, units = p->k / per_unit / 4 * 4;
    int step = p->width < 16 ? p->width : 16;
    for (int c = 0; c < p->width; c += step) {
        if (p->form == SN_F32 && step == 16)
            pack_transposed(&(sn_gemm_pack){p->from, p->ld, SN_F32, false, false, p->width, p->valid, p->k}, c, 16, units, out);
        else if (p->form == SN_F32)
            pack_transposed(&(sn_gemm_pack){p->from, p->ld, SN_F32, false, false, p->width, p->valid, p->k}, c, 12, units, out);
        else if (step == 16) pack_transposed(p, c, 16, units, out);
        else pack_transposed(p, c, 12, units, out);
    }
    int64_t steps = p->pairs ? (p->k + 1) / 2 : p->k, done = units * (p->pairs ? 1 : per_unit);
    sn_gemm_pack_steps(p, done, steps, out);
}

/* `at_once` rows, a constant: one chain of multiply-adds takes 16 values in 4 cycles, faster than memory gives them, so short rows are read
 * one after the other as a single stream; for long ones x does not stay in L1, so several rows share each load of it. */
INLINE void dots_of(sn_dtype form, int at_once, const float *x, const char *row, int64_t stride, int64_t k, float *out) {
    int64_t size = form == SN_F32 ? 4 : 2, line = 64 / size, i = 0;
    __m512 acc[SN_GEMM_DOTS];
    for (int r = 0; r < at_once; r++) acc[r] = _mm512_setzero_ps();
    for (; i + line <= k; i += line) {
#pragma GCC unroll 4
        for (int r = 0; r < at_once; r++) _mm_prefetch(row + r * stride + i * size + FETCH_AHEAD, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int64_t e = i; e < i + line; e += 16) {
            __m512 xv = _mm512_loadu_ps(x + e);
#pragma GCC unroll 4
            for (int r = 0; r < at_once; r++)
                acc[r] = _mm512_fmadd_ps(xv, _mm512_castsi512_ps(load_row(form, row + r * stride, e, 0xffff)), acc[r]);
        }
    }
    for (; i < k; i += 16) {
        __mmask16 mask = (__mmask16)(k - i >= 16 ? 0xffff : (1 << (k - i)) - 1);
        for (int r = 0; r < at_once; r++)
            acc[r] = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_castsi512_ps(load_row(form, row + r * stride, i, mask)), acc[r]);
    }
    for (int r = 0; r < at_once; r++) {
        __m256 h = _mm256_add_ps(_mm512_castps512_ps256(acc[r]), _mm512_extractf32x8_ps(acc[r], 1));
        __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
        q = _mm_add_ps(q, _mm_movehl_ps(q, q));
        out[r] = _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
    }
}

INLINE void dots_in(sn_dtype form, const float *x, const char *b, int64_t stride, int64_t k, int rows, float *out) {
    int r = 0;
    for (; k > LONG_ROW && r + LONG_ROWS <= rows; r += LONG_ROWS) dots_of(form, LONG_ROWS, x, b + r * stride, stride, k, out + r);
    for (; r < rows; r++) dots_of(form, 1, x, b + r * stride, stride, k, out + r);
}

void sn_gemm_avx512_dots(const float *x, const void *b, int64_t ldb, sn_dtype form, int64_t k, int rows, float *out) {
    if (form == SN_F32) dots_in(SN_F32, x, b, ldb * 4, k, rows, out);
    else if (form == SN_BF16) dots_in(SN_BF16, x, b, ldb * 2, k, rows, out);
    else dots_in(SN_F16, x, b, ldb * 2, k, rows, out);
}

void sn_gemm_avx512_store(sn_dtype form, const float *row, int64_t n, void *out) {
    if (form == SN_F32) {
        memcpy(out, row, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = (__mmask16)(n - i >= 16 ? 0xffff : (1 << (n - i)) - 1);
        __m512 f = _mm512_maskz_loadu_ps(mask, row + i);
        __m256i h;
        if (form == SN_BF16) {
            __m512i u = _mm512_castps_si512(f);
            __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
            __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
            rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q), quiet);
            h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
        } else {
            h = _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        }
        _mm256_mask_storeu_epi16((uint16_t *)out + i, mask, h);
    }
}

const sn_gemm_isa sn_gemm_avx512 = {.mr = MR,
                                    .nr = NR,
                                    .rows_block = MR,
                                    .pack = sn_gemm_avx512_pack,
                                    .tile = sn_gemm_avx512_tile,
                                    .dots = sn_gemm_avx512_dots,
                                    .convert = &sn_convert_avx512,
                                    .store = sn_gemm_avx512_store};
