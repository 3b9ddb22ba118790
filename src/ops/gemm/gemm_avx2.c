/* AVX2 and FMA: tiles of 6 x 16, 12 accumulators. */
#include <immintrin.h>
#include <string.h>

#include "ops/gemm/gemm_isa.h"
#include "tensor/convert.h"

enum { MR = 6, NR = 16 };
enum { FETCH_AHEAD = 2048 /* bytes */, LONG_ROW = 2048 /* k */, LONG_ROWS = 4 };
#define INLINE static inline __attribute__((always_inline))

/* Adds up to 8 floats at c, n of them valid; whole vectors when n is 8. */
INLINE __m256 load_some(const float *c, int n) {
    if (n >= 8) return _mm256_loadu_ps(c);
    float t[8] = {0};
    if (n > 0) memcpy(t, c, (size_t)n * 4);
    return _mm256_loadu_ps(t);
}
INLINE void store_some(float *c, int n, __m256 v) {
    if (n >= 8) {
        _mm256_storeu_ps(c, v);
        return;
    }
    float t[8];
    _mm256_storeu_ps(t, v);
    if (n > 0) memcpy(c, t, (size_t)n * 4);
}

/* m rows by nv vectors of 8 columns, both constants: the accumulators stay in registers. */
INLINE void tile_of(int m, int nv, int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int n, bool fresh,
                    const float *bias) {
    __m256 acc[MR][2];
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) acc[i][v] = _mm256_setzero_ps();
    }
    const float *fa = (const float *)a, *fb = (const float *)b;
#pragma GCC unroll 4
    for (int64_t k = 0; k < steps; k++) {
        __m256 bv[2];
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) bv[v] = _mm256_load_ps(fb + 8 * v);
#pragma GCC unroll 6
        for (int i = 0; i < m; i++) {
            __m256 av = _mm256_broadcast_ss(fa + i);
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) acc[i][v] = _mm256_fmadd_ps(av, bv[v], acc[i][v]);
        }
        fa += MR;
        fb += NR;
    }
    if (!fresh) {
#pragma GCC unroll 6
        for (int i = 0; i < m; i++)
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) acc[i][v] = _mm256_add_ps(load_some(c + i * ldc + 8 * v, n - 8 * v), acc[i][v]);
    }
    if (bias) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) {
            __m256 add = load_some(bias + 8 * v, n - 8 * v);
#pragma GCC unroll 6
            for (int i = 0; i < m; i++) acc[i][v] = _mm256_add_ps(acc[i][v], add);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < m; i++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) store_some(c + i * ldc + 8 * v, n - 8 * v, acc[i][v]);
}

#define SN_TILE_CASE(m)                                                     \
    case m:                                                                 \
        if (n == NR) tile_of(m, 2, steps, a, b, c, ldc, NR, fresh, bias);   \
        else if (n > 8) tile_of(m, 2, steps, a, b, c, ldc, n, fresh, bias); \
        else tile_of(m, 1, steps, a, b, c, ldc, n, fresh, bias);            \
        break;

static void tile(int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh, const float *bias) {
    switch (m) {
        SN_TILE_CASE(1)
        SN_TILE_CASE(2)
        SN_TILE_CASE(3)
        SN_TILE_CASE(4)
        SN_TILE_CASE(5)
        SN_TILE_CASE(6)
    }
}

/* Stores a vector of up to 8 cells of a panel row, of which `width` (8 or 6) belong to it. */
INLINE void put(uint32_t *out, int width, __m256i v) {
    if (width >= 8) {
        _mm256_storeu_si256((__m256i *)out, v);
    } else {
        _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(v));
        _mm_storel_epi64((__m128i *)(out + 4), _mm256_extracti128_si256(v, 1));
    }
}

/* The low 16 bits of 8 units as f16. */
INLINE __m256i widen_f16(__m256i low) {
    __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    return _mm256_castps_si256(_mm256_cvtph_ps(h));
}

/* Emits one transposed vector of 4-byte units: one f32, or two 16-bit values that become two cells. */
INLINE void emit(const sn_gemm_pack *p, int width, __m256i unit, uint32_t *out) {
    if (p->form == SN_F32) {
        put(out, width, unit);
    } else if (p->form == SN_BF16) {
        put(out, width, _mm256_slli_epi32(unit, 16));
        put(out + p->width, width, _mm256_and_si256(unit, _mm256_set1_epi32((int)0xffff0000)));
    } else {
        put(out, width, widen_f16(_mm256_and_si256(unit, _mm256_set1_epi32(0xffff))));
        put(out + p->width, width, widen_f16(_mm256_srli_epi32(unit, 16)));
    }
}

/* As in gemm_avx512.c, with two lanes. */
INLINE void pack_transposed(const sn_gemm_pack *p, int c, int width, int64_t units, uint32_t *out) {
    int cells = p->form == SN_F32 ? 1 : 2;
    const char *row[8];
    for (int i = 0; i < 8; i++) {
        int column = c + i < p->valid ? c + i : p->valid - 1;
        row[i] = (const char *)p->from + column * p->ld * (p->form == SN_F32 ? 4 : 2);
    }
    uint32_t *to = out + c;
    for (int64_t u = 0; u + 4 <= units; u += 4) {
        __m256i z[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++)
            z[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(row[r] + 4 * u))),
                                           _mm_loadu_si128((const __m128i *)(row[r + 4] + 4 * u)), 1);
        __m256i t0 = _mm256_unpacklo_epi32(z[0], z[1]), t1 = _mm256_unpackhi_epi32(z[0], z[1]);
        __m256i t2 = _mm256_unpacklo_epi32(z[2], z[3]), t3 = _mm256_unpackhi_epi32(z[2], z[3]);
        int stride = cells * p->width;
        emit(p, width, _mm256_unpacklo_epi64(t0, t2), to);
        emit(p, width, _mm256_unpackhi_epi64(t0, t2), to + stride);
        emit(p, width, _mm256_unpacklo_epi64(t1, t3), to + 2 * stride);
        emit(p, width, _mm256_unpackhi_epi64(t1, t3), to + 3 * stride);
        to += 4 * stride;
    }
}

/* 8 values of a row as f32 cells. */
INLINE __m256i load_row(sn_dtype form, const void *row, int64_t at) {
    if (form == SN_F32) return _mm256_loadu_si256((const __m256i *)((const float *)row + at));
    __m128i h = _mm_loadu_si128((const __m128i *)((const uint16_t *)row + at));
    return form == SN_BF16 ? _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16) : _mm256_castps_si256(_mm256_cvtph_ps(h));
}

/* Stored rows run over k: 16 or 6 values each, copied or widened. */
INLINE void pack_rows(const sn_gemm_pack *p, uint32_t *out) {
    int64_t last = p->width == 6 ? p->k - 1 : p->k; /* 8 values are read for 6: not in the last row */
    for (int64_t k = 0; k < last; k++)
        for (int c = 0; c < p->width; c += 8) put(out + k * p->width + c, p->width - c, load_row(p->form, p->from, k * p->ld + c));
    sn_gemm_pack_steps(p, last, p->k, out);
}

static void pack(const sn_gemm_pack *p, uint32_t *out) {
    if (p->k_rows) {
        if (p->valid < p->width || (p->width == 6 && p->ld < 8)) sn_gemm_pack_any(p, out);
        else pack_rows(p, out);
        return;
    }
    int64_t per_unit = p->form == SN_F32 ? 1 : 2, units = p->k / per_unit / 4 * 4;
    if (p->width == 6) pack_transposed(p, 0, 6, units, out);
    else
        for (int c = 0; c < p->width; c += 8) pack_transposed(p, c, 8, units, out);
    sn_gemm_pack_steps(p, units * per_unit, p->k, out);
}

/* As in gemm_avx512.c; low and high: lanes 0-7 and 8-15. */
INLINE void dots_of(sn_dtype form, int at_once, const float *x, const char *row, int64_t stride, int64_t k, float *out) {
    int64_t size = form == SN_F32 ? 4 : 2, line = 64 / size, i = 0;
    __m256 low[SN_GEMM_DOTS], high[SN_GEMM_DOTS];
    for (int r = 0; r < at_once; r++) low[r] = high[r] = _mm256_setzero_ps();
    for (; i + line <= k; i += line) {
#pragma GCC unroll 4
        for (int r = 0; r < at_once; r++) _mm_prefetch(row + r * stride + i * size + FETCH_AHEAD, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int64_t e = i; e < i + line; e += 16) {
            __m256 x0 = _mm256_loadu_ps(x + e), x1 = _mm256_loadu_ps(x + e + 8);
#pragma GCC unroll 4
            for (int r = 0; r < at_once; r++) {
                low[r] = _mm256_fmadd_ps(x0, _mm256_castsi256_ps(load_row(form, row + r * stride, e)), low[r]);
                high[r] = _mm256_fmadd_ps(x1, _mm256_castsi256_ps(load_row(form, row + r * stride, e + 8)), high[r]);
            }
        }
    }
    for (; i < k; i += 16)
        for (int r = 0; r < at_once; r++) {
            float y[16] = {0};
            sn_gemm_load_row(form, row + r * stride + i * size, 1, k - i < 16 ? k - i : 16, y);
            low[r] = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y), low[r]);
            high[r] = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(y + 8), high[r]);
        }
    for (int r = 0; r < at_once; r++) {
        __m256 h = _mm256_add_ps(low[r], high[r]);
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

static void dots(const float *x, const void *b, int64_t ldb, sn_dtype form, int64_t k, int rows, float *out) {
    if (form == SN_F32) dots_in(SN_F32, x, b, ldb * 4, k, rows, out);
    else if (form == SN_BF16) dots_in(SN_BF16, x, b, ldb * 2, k, rows, out);
    else dots_in(SN_F16, x, b, ldb * 2, k, rows, out);
}

static void store(sn_dtype form, const float *row, int64_t n, void *out) {
    int64_t i = 0;
    for (; form != SN_F32 && i + 8 <= n; i += 8) {
        __m256 f = _mm256_loadu_ps(row + i);
        __m128i h;
        if (form == SN_BF16) {
            __m256i u = _mm256_castps_si256(f);
            __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
            __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
            rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q)));
            rounded = _mm256_srli_epi32(rounded, 16);
            h = _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
        } else {
            h = _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        }
        _mm_storeu_si128((__m128i *)((uint16_t *)out + i), h);
    }
    sn_gemm_store_row(form, row + i, n - i, (char *)out + i * sn_dtypes[form].bytes);
}

const sn_gemm_isa sn_gemm_avx2 = {
    .mr = MR, .nr = NR, .rows_block = 96, .pack = pack, .tile = tile, .dots = dots, .convert = &sn_convert_avx2, .store = store};
