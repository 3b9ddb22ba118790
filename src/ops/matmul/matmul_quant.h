/* Products with a frozen quantised weight W (input b of matmul), in two ways.
 *
 * 1. a is f32, bf16 or f16: W is decoded to f32 while sn_gemm packs it; b is [N,K] (trans_b) or [K,N]. The result is that
 *    of decoding first and multiplying then, bit for bit.
 * 2. b is [N,K] (trans_b) and a holds 8-bit codes: q8_1 for the 32-element formats (q4_0, q4_1, q5_0, q5_1, q8_0), q8_k for
 *    the 256-element ones (q2_k .. q6_k). Dot products of codes are integers, so they are exact in any order; per block,
 *    in ascending k, an element of y is one f32 chain from 0:
 *      32:  acc = fma(d, (float)sum((code - offset) * a) * da, acc);  with a minimum then  acc = fma(m, (float)sum(a) * da, acc)
 *      256: acc = fma(d, (float)sum_g(scale_g * sum((code - offset) * a)) * da, acc);
 *           with minima then  acc = fma(-dmin, (float)sum_g(min_g * sum(a)) * da, acc)
 *    then the bias is added and the sum rounded to y's form. Every kernel here gives these bits. The sums kept in q8_1
 *    and q8_k blocks are not read: they are rounded (q8_1) or would have to be trusted (q8_k). */
#ifndef SN_OPS_MATMUL_MATMUL_QUANT_H
#define SN_OPS_MATMUL_MATMUL_QUANT_H

#include "ops/cast/convert_isa.h"
#include "program/kernel.h"
#include "tensor/blocks.h"

/* Each ended by an entry without a name, best first. */
extern const sn_kernel sn_matmul_quant_cpu[], sn_matmul_quant_avx2[], sn_matmul_quant_avx512[], sn_matmul_quant_avx512_vnni[];

/* The form of activations that goes with a weight in integer products; SN_DTYPE_COUNT: none. */
static inline sn_dtype sn_quant_activation(sn_dtype weight) {
    if (weight >= SN_Q4_0 && weight <= SN_Q8_0) return SN_Q8_1;
    return weight >= SN_Q2_K && weight <= SN_Q6_K ? SN_Q8_K : SN_DTYPE_COUNT;
}

enum { SN_QUANT_MAX_ROWS = 16, SN_QUANT_MAX_TOKENS = 8 };

/* How one processor family computes way 2. W is taken in panels of `rows` rows, one row a 32-bit lane; activations in
 * tiles of 1, 2, 4 .. `tokens` tokens, laid out so that a lane-wide broadcast of four codes meets four codes of each row.
 *
 * Tile of T tokens, per block of 32: codes [8][T][4] s8, da f32 [T], da * sum(a) f32 [T], -offset * sum(a) i32 [T];
 * per block of 256: codes [64][T][4] s8, sums of 16 codes i32 [16][T], da f32 [T].
 * Panel of R rows, per block of 32: codes [8][R][4], d f32 [R], m f32 [R];
 * per block of 256: codes [64][R][4], scales i32 [16][R], mins i32 [16][R], d f32 [R], -dmin f32 [R]. */
typedef struct sn_quant_isa {
    int rows, tokens;
    const sn_convert_isa *convert;
    void (*arrange)(sn_dtype w, const uint8_t *a, size_t stride, int64_t k, int tokens, void *tile);
    void (*pack)(sn_dtype w, const uint8_t *b, size_t stride, int64_t k, void *panel);
    void (*multiply)(sn_dtype w, const void *panel, int64_t k, const void *tile, int tokens, float *out); /* out [tokens][rows] */
    /* The same from stored rows: for one tile, when packing would not pay. */
    void (*multiply_stored)(sn_dtype w, const uint8_t *b, size_t stride, int64_t k, const void *tile, int tokens, float *out);
} sn_quant_isa;

static inline size_t sn_quant_token_bytes(sn_dtype w, int64_t k) { /* of one token in a tile */
    return sn_dtypes[w].block == 32 ? (size_t)(k / 32) * (32 + 3 * 4) : (size_t)(k / 256) * (256 + 16 * 4 + 4);
}
static inline size_t sn_quant_panel_bytes(sn_dtype w, int64_t k, int rows) {
    return (size_t)rows * (sn_dtypes[w].block == 32 ? (size_t)(k / 32) * (32 + 2 * 4) : (size_t)(k / 256) * (256 + 34 * 4));
}

/* Kernel functions, the ISA apart. */
bool sn_quant_takes(const sn_call *c);
size_t sn_quant_scratch(const sn_quant_isa *isa, const sn_call *c, int n_threads);
void sn_quant_run(const sn_quant_isa *isa, const sn_call *c);

#endif
