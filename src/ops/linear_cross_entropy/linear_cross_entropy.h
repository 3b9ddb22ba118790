/* linear_cross_entropy: logits = h [T,E] w[V,E]^T, loss and its gradients, without the logits ever existing as a whole.
 *
 * Inputs h (f32, bf16, f16), w (those, or a quantised format), labels i32 [T] (-100: the token has no loss), scale f32 [1].
 * Outputs token_loss f32 [T] = log(sum exp(logits)) - logits[label], 0 where there is no loss (scale is not in it);
 * dh [T,E] in h's form and dw [V,E] = scale * the gradients of the sum of losses.
 *
 * Only rows with a label are computed, in chunks of that many rows. A row's sum of exponentials is f64: lane l of 16 sums the
 * columns l, l + 16, ... in order, then lanes i and i + 8, i + 4, i + 2, i + 1 are added. The logits' gradient replaces them: in f32, or
 * rounded to bf16 when h and w are both bf16. dh is a sum over the vocabulary and dw one over the labelled tokens, as in
 * ops/gemm/gemm.h, so no result depends on the chunk. */
#ifndef SN_OPS_LINEAR_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H
#define SN_OPS_LINEAR_CROSS_ENTROPY_LINEAR_CROSS_ENTROPY_H

#include "program/kernel.h"

/* Integer attributes. dw_dtype: f32, bf16 or f16. chunk: rows whose logits exist at a time; 0: chosen. */
enum { SN_LINEAR_CROSS_ENTROPY_WANT_DH, SN_LINEAR_CROSS_ENTROPY_WANT_DW, SN_LINEAR_CROSS_ENTROPY_DW_DTYPE, SN_LINEAR_CROSS_ENTROPY_CHUNK };
enum { SN_NO_LABEL = -100 };

/* For this op and its parts (cross_entropy_part.h): the quantised forms that w may have; whether h, w and labels, inputs 0 to 2, fit
 * together; and the cost (of graph/op.h, which kernels do not see), where gradients are outputs `dh` .., if there. */
bool sn_cross_entropy_weight(sn_dtype form);
sn_status sn_linear_cross_entropy_check(const char *op, const sn_call *c, bool want_dw);
struct sn_cost sn_linear_cross_entropy_cost(const sn_call *c, int dh);

extern const sn_kernel sn_linear_cross_entropy_cpu[], sn_linear_cross_entropy_avx2[], sn_linear_cross_entropy_avx512[],
    sn_linear_cross_entropy_avx512_bf16[];

#endif
