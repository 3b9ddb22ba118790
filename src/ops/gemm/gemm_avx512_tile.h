/* Tiles and packing that the f32 and the bf16-pair kernels of AVX-512 share. Included by gemm_avx512*.c only. */
#ifndef SN_OPS_GEMM_GEMM_AVX512_TILE_H
#define SN_OPS_GEMM_GEMM_AVX512_TILE_H

#include <immintrin.h>

#include "ops/gemm/gemm_isa.h"

enum { MR = 12, NR = 32 };
#define INLINE static inline __attribute__((always_inline))

/* One step of one vector of C: f32 multiply-add, or vdpbf16ps. */
typedef __m512 step_fn(__m512 acc, __m512 a, __m512 b);

/* m rows by nv vectors of 16 columns, both constants: the accumulators stay in registers. */
INLINE void tile_of(int m, int nv, step_fn *step, int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int n,
                    bool fresh, const float *bias) {
    __m512 acc[MR][2];
    __mmask16 mask[2] = {(__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1), (__mmask16)(n >= 32 ? 0xffff : n <= 16 ? 0 : (1 << (n - 16)) - 1)};
#pragma GCC unroll 12
    for (int i = 0; i < m; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) {
            acc[i][v] = _mm512_setzero_ps();
            _mm_prefetch((const char *)(c + i * ldc + 16 * v), _MM_HINT_T0);
        }
    }
    const float *fa = (const float *)a, *fb = (const float *)b;
    for (int64_t k = 0; k < steps; k++) {
        __m512 bv[2];
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) bv[v] = _mm512_load_ps(fb + 16 * v);
#pragma GCC unroll 12
        for (int i = 0; i < m; i++) {
            __m512 av = _mm512_set1_ps(fa[i]);
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) acc[i][v] = step(acc[i][v], av, bv[v]);
        }
        fa += MR;
        fb += NR;
    }
    if (!fresh) {
#pragma GCC unroll 12
        for (int i = 0; i < m; i++)
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) acc[i][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(mask[v], c + i * ldc + 16 * v), acc[i][v]);
    }
    if (bias) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) {
            __m512 add = _mm512_maskz_loadu_ps(mask[v], bias + 16 * v);
#pragma GCC unroll 12
            for (int i = 0; i < m; i++) acc[i][v] = _mm512_add_ps(acc[i][v], add);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < m; i++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) _mm512_mask_storeu_ps(c + i * ldc + 16 * v, mask[v], acc[i][v]);
}

#define SN_TILE_CASE(m)                                                       \
    case m:                                                                   \
        if (n > 16) tile_of(m, 2, step, steps, a, b, c, ldc, n, fresh, bias); \
        else tile_of(m, 1, step, steps, a, b, c, ldc, n, fresh, bias);        \
        break;

INLINE void tile_any(step_fn *step, int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh,
                     const float *bias) {
    switch (m) {
        SN_TILE_CASE(1)
        SN_TILE_CASE(2)
        SN_TILE_CASE(3)
        SN_TILE_CASE(4)
        SN_TILE_CASE(5)
        SN_TILE_CASE(6)
        SN_TILE_CASE(7)
        SN_TILE_CASE(8)
        SN_TILE_CASE(9)
        SN_TILE_CASE(10)
        SN_TILE_CASE(11)
        SN_TILE_CASE(12)
    }
}

void sn_gemm_avx512_pack(const sn_gemm_pack *p, uint32_t *out);
void sn_gemm_avx512_tile(int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh,
                         const float *bias);
void sn_gemm_avx512_dots(const float *x, const void *b, int64_t ldb, sn_dtype form, int64_t k, int rows, float *out);
void sn_gemm_avx512_store(sn_dtype form, const float *row, int64_t n, void *out);

#endif
