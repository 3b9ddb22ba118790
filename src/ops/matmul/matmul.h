/* matmul: y [M,N] = op(a) [M,K] op(b) [K,N] (+ bias [N]).
 *
 * a: f32, bf16 or f16; or 8-bit codes (q8_1, q8_k) against a quantised b. b: those float forms or a block format (a frozen
 * weight, q4_0 .. q6_k). The sums are those of ops/gemm/gemm.h; products of codes are defined in matmul_quant.h. */
#ifndef SN_OPS_MATMUL_MATMUL_H
#define SN_OPS_MATMUL_MATMUL_H

#include "program/kernel.h"

/* Integer attributes. trans_a: a is [K,M]. trans_b: b is [N,K]. dtype: form of y. */
enum { SN_MATMUL_TRANS_A, SN_MATMUL_TRANS_B, SN_MATMUL_DTYPE };

extern const sn_kernel sn_matmul_cpu[], sn_matmul_avx2[], sn_matmul_avx512[], sn_matmul_avx512_bf16[];

#endif
