/* Tile routines of attention_core.h, compiled by attention_avx2.c and attention_avx512.c: both include this file and name the table. */
#include <math.h>

#include "ops/attention/attention_core.h"
#include "ops/attention/attention_math.h"

enum { TILE = SN_ATTENTION_TILE };

SN_INLINE sn_vf load_some(sn_dtype form, const void *row, int i, int d) {
    if (!row) return vf_zero();
    const void *p = form_at(form, row, i);
    return i + SN_LANES <= d ? vf_load_form(form, p) : vf_load_part(form, p, d - i);
}

SN_INLINE void load_as(sn_dtype form, const void *const *rows, int n, int d, int ld, float *out) {
    for (int r = 0; r < n; r++) {
        int i = 0;
        for (; i < d; i += SN_LANES) vf_store(out + (size_t)r * ld + i, load_some(form, rows[r], i, d));
        for (; i < ld; i += SN_LANES) vf_store(out + (size_t)r * ld + i, vf_zero());
    }
}
static void load(sn_dtype form, const void *const *rows, int n, int d, int ld, float *out) {
    if (form == SN_F32) load_as(SN_F32, rows, n, d, ld, out);
    else if (form == SN_BF16) load_as(SN_BF16, rows, n, d, ld, out);
    else load_as(SN_F16, rows, n, d, ld, out);
}

SN_INLINE void load_transposed_as(sn_dtype form, const void *const *rows, int n, int d, float *out) {
    int columns = (n + 15) / 16 * 16;
    for (int r = 0; r < columns; r += SN_LANES)
        for (int i = 0; i < d; i += SN_LANES) {
            sn_vf x[SN_LANES];
#pragma GCC unroll 16
            for (int a = 0; a < SN_LANES; a++) x[a] = r + a < n ? load_some(form, rows[r + a], i, d) : vf_zero();
            vf_transpose(x);
            if (i + SN_LANES <= d) {
#pragma GCC unroll 16
                for (int a = 0; a < SN_LANES; a++) vf_store(out + (size_t)(i + a) * TILE + r, x[a]);
            } else {
#pragma GCC unroll 16
                for (int a = 0; a < SN_LANES; a++)
                    if (i + a < d) vf_store(out + (size_t)(i + a) * TILE + r, x[a]);
            }
        }
}
static void load_transposed(sn_dtype form, const void *const *rows, int n, int d, float *out) {
    if (form == SN_F32) load_transposed_as(SN_F32, rows, n, d, out);
    else if (form == SN_BF16) load_transposed_as(SN_BF16, rows, n, d, out);
    else load_transposed_as(SN_F16, rows, n, d, out);
}

/* The register tile: MR rows by NV vectors. */
SN_INLINE void block(const int mr, const int nv, int k, const float *a, int ai, int aj, const float *b, int ldb, float *c, int ldc,
                     bool add) {
    sn_vf acc[6][4];
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) acc[i][j] = add ? vf_load(c + (size_t)i * ldc + j * SN_LANES) : vf_zero();
    for (int p = 0; p < k; p++, a += aj, b += ldb) {
        sn_vf y[4];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) y[j] = vf_load(b + j * SN_LANES);
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            sn_vf x = vf_set(a[(ptrdiff_t)i * ai]);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++) acc[i][j] = vf_fma(x, y[j], acc[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) vf_store(c + (size_t)i * ldc + j * SN_LANES, acc[i][j]);
}

SN_INLINE void panel(const int nv, int m, int k, const float *a, int ai, int aj, const float *b, int ldb, float *c, int ldc, bool add) {
    for (; m >= 6; m -= 6, a += (ptrdiff_t)6 * ai, c += (ptrdiff_t)6 * ldc) block(6, nv, k, a, ai, aj, b, ldb, c, ldc, add);
    switch (m) {
    case 5: block(5, nv, k, a, ai, aj, b, ldb, c, ldc, add); break;
    case 4: block(4, nv, k, a, ai, aj, b, ldb, c, ldc, add); break;
    case 3: block(3, nv, k, a, ai, aj, b, ldb, c, ldc, add); break;
    case 2: block(2, nv, k, a, ai, aj, b, ldb, c, ldc, add); break;
    case 1: block(1, nv, k, a, ai, aj, b, ldb, c, ldc, add); break;
    default: break;
    }
}

static void gemm(int m, int n, int k, const float *a, int ai, int aj, const float *b, int ldb, float *c, int ldc, bool add) {
    int j = 0;
#if defined(__AVX512F__)
    for (; j + 64 <= n; j += 64) panel(4, m, k, a, ai, aj, b + j, ldb, c + j, ldc, add);
    if (n - j >= 48) panel(3, m, k, a, ai, aj, b + j, ldb, c + j, ldc, add);
    else if (n - j >= 32) panel(2, m, k, a, ai, aj, b + j, ldb, c + j, ldc, add);
    else if (n - j >= 16) panel(1, m, k, a, ai, aj, b + j, ldb, c + j, ldc, add);
#else
    for (; j + 16 <= n; j += 16) panel(2, m, k, a, ai, aj, b + j, ldb, c + j, ldc, add);
#endif
}

static float exp2_of(float x) {
    _Alignas(64) float y[SN_LANES];
    vf_store(y, vf_exp2(vf_set(x)));
    return y[0];
}

static void clear(float *x, int n) {
    for (int j = 0; j < n; j += SN_LANES) vf_store(x + j, vf_zero());
}

static void softmax(int rows, int n, float c, const int *lo, const int *hi, float *s, float *m, float *l, float *o, int dp) {
    const sn_vf least = vf_set(-INFINITY), factor = vf_set(c);
    for (int r = 0; r < rows; r++, s += TILE, o += dp) {
        if (hi[r] < 0 || lo[r] >= n || hi[r] < lo[r]) { /* sees nothing here */
            clear(s, n);
            continue;
        }
        bool whole = lo[r] <= 0 && hi[r] >= n - 1;
        sn_vf top = least;
        for (int j = 0; j < n; j += SN_LANES) {
            sn_vf x = vf_load(s + j);
            if (!whole) {
                x = vf_between(x, least, lo[r] - j, hi[r] + 1 - j);
                vf_store(s + j, x);
            }
            top = vf_max(top, x);
        }
        float max = vf_top(top) * c, now = max > m[r] ? max : m[r];
        sn_vf shift = vf_set(now == -INFINITY ? 0 : -now), sum = vf_zero();
        for (int j = 0; j < n; j += SN_LANES) {
            sn_vf p = vf_exp2(vf_fma(vf_load(s + j), factor, shift));
            vf_store(s + j, p);
            sum = vf_add(sum, p);
        }
        if (now != m[r]) {
            float keep = exp2_of(m[r] - now);
            for (int j = 0; j < dp; j += SN_LANES) vf_store(o + j, vf_mul(vf_load(o + j), vf_set(keep)));
            l[r] *= keep;
            m[r] = now;
        }
        l[r] += vf_sum(sum);
    }
}

static void join(int rows, int dp, const float *m, const float *l, const float *o, float *row_m, float *row_l, float *row_o) {
    for (int r = 0; r < rows; r++, o += dp, row_o += dp) {
        float now = m[r] > row_m[r] ? m[r] : row_m[r], base = now == -INFINITY ? 0 : now;
        float a = exp2_of(row_m[r] - base), b = exp2_of(m[r] - base);
        row_m[r] = now;
        row_l[r] = row_l[r] * a + l[r] * b;
        for (int j = 0; j < dp; j += SN_LANES)
            vf_store(row_o + j, vf_fma(vf_load(o + j), vf_set(b), vf_mul(vf_load(row_o + j), vf_set(a))));
    }
}

static void backward(int rows, int n, float c, float scale, const int *lo, const int *hi, const float *lse2, const float *delta, float *s,
                     float *dp) {
    for (int r = 0; r < rows; r++, s += TILE, dp += TILE) {
        bool whole = lo[r] <= 0 && hi[r] >= n - 1;
        for (int j = 0; j < n; j += SN_LANES) {
            sn_vf p = vf_exp2(vf_fma(vf_load(s + j), vf_set(c), vf_set(-lse2[r])));
            sn_vf ds = vf_mul(vf_mul(p, vf_sub(vf_load(dp + j), vf_set(delta[r]))), vf_set(scale));
            if (!whole) {
                p = vf_between(p, vf_zero(), lo[r] - j, hi[r] + 1 - j);
                ds = vf_between(ds, vf_zero(), lo[r] - j, hi[r] + 1 - j);
            }
            vf_store(s + j, p);
            vf_store(dp + j, ds);
        }
    }
}

static void store(sn_dtype form, const float *x, float factor, int d, void *out) {
    for (int i = 0; i < d; i += SN_LANES) {
        sn_vf y = vf_mul(vf_load(x + i), vf_set(factor));
        void *p = (char *)out + (size_t)i * form_bytes(form);
        if (i + SN_LANES <= d) vf_store_form(form, p, y);
        else vf_store_part(form, p, y, d - i);
    }
}

static float dot(sn_dtype form_a, const void *a, sn_dtype form_b, const void *b, int d) {
    sn_vf sum = vf_zero();
    for (int i = 0; i < d; i += SN_LANES) sum = vf_fma(load_some(form_a, a, i, d), load_some(form_b, b, i, d), sum);
    return vf_sum(sum);
}

#define SN_ATTENTION_ISA \
    { load, load_transposed, gemm, softmax, join, backward, store, dot }
