/* ring_attention_grad: the gradient of attention over a sequence spread over ranks, as far as this rank's queries and the keys
 * and values that visit it make it.
 *
 *   do act [T, H*D], q [T, H*D], k [S, G*D], v [S, G*D], o [T, H*D], lse f32 [T, H] (of all keys: the last step's),
 *   index i32 [T], key_index i32 [S], seq_start i32 [T], dq f32 [T, H*D], dk f32 [S, G*D], dv f32 [S, G*D] (each optional)
 *     -> dq f32 (attribute `of` 0), or dk f32 and dv f32 (`of` 1): what came in and this pair of runs' part
 *
 * dq stays with the queries; dk and dv travel with their keys, and are whole when these have met all ranks. Places as in
 * ring_attention; each output may take the place of the input that it adds to. */
#ifndef SN_OPS_RING_ATTENTION_GRAD_H
#define SN_OPS_RING_ATTENTION_GRAD_H

#include "program/kernel.h"

enum {
    SN_RING_ATTENTION_GRAD_HEAD_DIM,
    SN_RING_ATTENTION_GRAD_WINDOW,
    SN_RING_ATTENTION_GRAD_OF
};                                     /* attrs.i, the first two as attention's */
enum { SN_RING_ATTENTION_GRAD_SCALE }; /* attrs.f */
enum { SN_RING_OF_QUERIES, SN_RING_OF_KEYS };

extern const sn_kernel sn_ring_attention_grad_cpu[];
extern const sn_kernel sn_ring_attention_grad_avx2[];
extern const sn_kernel sn_ring_attention_grad_avx512[];

#endif
