/* AVX-512 with BF16: as AVX-512, and bf16 x bf16 by vdpbf16ps on pairs. */
#include "ops/gemm/gemm_avx512_tile.h"

INLINE __m512 step_pairs(__m512 acc, __m512 a, __m512 b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }

static void tile_pairs(int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh,
                       const float *bias) {
    tile_any(step_pairs, steps, a, b, c, ldc, m, n, fresh, bias);
}

const sn_gemm_isa sn_gemm_avx512_bf16 = {.mr = MR,
                                         .nr = NR,
                                         .rows_block = MR,
                                         .pairs = true,
                                         .pack = sn_gemm_avx512_pack,
                                         .tile = sn_gemm_avx512_tile,
                                         .tile_pairs = tile_pairs,
                                         .dots = sn_gemm_avx512_dots,
                                         .convert = &sn_convert_avx512,
                                         .store = sn_gemm_avx512_store};
