/* attention_grad: the gradient of attention.
 *
 *   do act [T, H*D], q [T, H*D], k [T, G*D], v [T, G*D], o [T, H*D], lse f32 [T, H], seq_start i32 [T]
 *     -> dq [T, H*D] (form of q), dk [T, G*D] (form of k), dv [T, G*D] (form of v)
 *
 * The probabilities are computed again from q, k and lse. dk and dv add up over queries in token order, the heads of
 * a group in order within a token; dq over keys in token order. */
#ifndef SN_OPS_ATTENTION_GRAD_H
#define SN_OPS_ATTENTION_GRAD_H

#include "program/kernel.h"

enum { SN_ATTENTION_GRAD_HEAD_DIM, SN_ATTENTION_GRAD_WINDOW }; /* attrs.i, as attention's */
enum { SN_ATTENTION_GRAD_SCALE };                              /* attrs.f */

extern const sn_kernel sn_attention_grad_cpu[];
extern const sn_kernel sn_attention_grad_avx2[];
extern const sn_kernel sn_attention_grad_avx512[];

#endif
