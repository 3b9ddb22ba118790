/* linear_cross_entropy of a vocabulary in parts, each some rows of w on a rank of its own. Ops never communicate: what lies between
 * these three is moved.
 *
 * cross_entropy_part: h [T,E], w [V,E], labels i32 [T] -> part f64 [parts,T,3]: of a part's rows of w each token's largest logit, the sum
 * of exp(logit - that), and the label's logit, 0 when it is elsewhere. A token without a label has zeros. A rank that holds rows of w
 * gives the part of them; `first` is its first row.
 *
 * cross_entropy_join: part [parts,T,3], labels, scale f32 [1] -> token_loss f32 [T], as linear_cross_entropy gives it, and norm f64
 * [T,3] = {largest logit, scale / sum of exponentials, scale} for the gradients.
 *
 * cross_entropy_part_grad: h, w, labels, norm -> dh [T,E], the part's summand of it, in the form of h, and dw [V,E] of its rows.
 * Which tokens, sums and forms: see linear_cross_entropy.h. With one part the bits are those of linear_cross_entropy. */
#ifndef SN_OPS_LINEAR_CROSS_ENTROPY_CROSS_ENTROPY_PART_H
#define SN_OPS_LINEAR_CROSS_ENTROPY_CROSS_ENTROPY_PART_H

#include "program/kernel.h"

/* Integer attributes of cross_entropy_part. vocab: rows of the whole w; first: of them, the first here. */
enum { SN_CROSS_ENTROPY_PART_PARTS = 0, SN_CROSS_ENTROPY_PART_CHUNK = 1, SN_CROSS_ENTROPY_PART_VOCAB = 4, SN_CROSS_ENTROPY_PART_FIRST = 5 };
/* Of cross_entropy_part_grad: want_dh, want_dw, dw_dtype, chunk as of linear_cross_entropy, and vocab and first as above. */

enum { SN_CROSS_ENTROPY_JOIN_VOCAB = 0 }; /* int: labels are below it */

/* Of a token: in norm; in part there are max, sum and the label's logit. */
enum { SN_CROSS_ENTROPY_MAX, SN_CROSS_ENTROPY_FACTOR, SN_CROSS_ENTROPY_SCALE, SN_CROSS_ENTROPY_NORM };

extern const sn_kernel sn_cross_entropy_part_cpu[], sn_cross_entropy_part_avx2[], sn_cross_entropy_part_avx512[],
    sn_cross_entropy_part_avx512_bf16[];
extern const sn_kernel sn_cross_entropy_part_grad_cpu[], sn_cross_entropy_part_grad_avx2[], sn_cross_entropy_part_grad_avx512[],
    sn_cross_entropy_part_grad_avx512_bf16[];
extern const sn_kernel sn_cross_entropy_join_cpu[];

#endif
