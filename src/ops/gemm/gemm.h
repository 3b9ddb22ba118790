/* Matrix multiplication for ops: C[M,N] = op(A)[M,K] op(B)[K,N] (+ bias[N]), row-major, on a team.
 *
 * Exactness. K is cut into runs of SN_GEMM_RUN; in each a chain acc = fma(a, b, acc) goes over k in ascending order from 0,
 * and the runs' sums are added in order, all in f32 (to C's value when accumulating); then the bias is added and the sum
 * rounded to C's form. So reference, AVX2 and AVX-512 give the same bits for every tile, thread count and offset, and
 * the rounding error does not grow with a long K: one chain over a vocabulary of 49,152 loses three decimal digits.
 * Two exceptions, each with a fixed order of its own:
 *  - M = 1 with trans_b, unless `chain` is set (bound by reading B): K is padded with zeros to a multiple of 16; lane l of 16
 *    sums k = l, l + 16, ... by fma from 0; then lanes i and i + 8, i + 4, i + 2, i + 1 are added in that order. Equal on every ISA.
 *  - sn_gemm_avx512_bf16 with A and B both bf16: vdpbf16ps: in each run a chain over pairs (k, k + 1), whose order within a
 *    pair and handling of denormals (as 0) are the processor's. Products of bf16 are exact in f32, so what differs is only how sums
 *    are rounded: |error| <= K 2^-23 sum |a b|. Tiles, threads and offsets do not change its bits either. */
#ifndef SN_OPS_GEMM_GEMM_H
#define SN_OPS_GEMM_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/team.h"
#include "tensor/dtype.h"

enum { SN_GEMM_RUN = 256 };

/* One product. A and C are f32, bf16 or f16; B is that or a block format (decoded by sn_to_f32 while it is packed).
 * lda, ldb, ldc: elements from one stored row to the next. a is stored [M,K], or [K,M] with trans_a; b [K,N], or [N,K] with
 * trans_b. With a block format each stored row must start at a block. */
typedef struct sn_gemm {
    int64_t m, n, k;
    const void *a, *b, *bias; /* bias may be NULL */
    void *c;
    int64_t lda, ldb, ldc;
    sn_dtype a_form, b_form, c_form, bias_form; /* bias: f32, bf16 or f16 */
    bool trans_a, trans_b;
    bool accumulate; /* the runs are added to C, which must be f32 */
    bool chain;      /* runs of chains for M = 1 too */
} sn_gemm;

typedef struct sn_gemm_isa sn_gemm_isa; /* how one processor family computes it; gemm_isa.h */
extern const sn_gemm_isa sn_gemm_cpu, sn_gemm_avx2, sn_gemm_avx512, sn_gemm_avx512_bf16;

/* Bytes of scratch for these extents and forms (pointers are not read). Never less for larger extents or more threads. */
size_t sn_gemm_scratch(const sn_gemm_isa *isa, const sn_gemm *g, int n_threads);

/* scratch: sn_gemm_scratch bytes for at least these extents and the team's threads, aligned to 64. C overlaps nothing else. */
void sn_gemm_run(const sn_gemm_isa *isa, const sn_gemm *g, void *scratch, sn_team *team);

#endif
