/* paged_attention: attention of new tokens over a paged key/value cache: prompts, parts of prompts and decoding alike.
 *
 *   q act [T, H*D], cache [B, 2, G, S, D] (f32, bf16 or f16), block_table i32 [N, M], sequence i32 [T], positions i32 [T]
 *     -> o [T, H*D] (form of q)
 *
 * Token t belongs to row sequence[t] of block_table (-1: idle, its output is zero) and sees keys
 * max(0, positions[t] - window + 1) .. positions[t]; key p of a sequence lies in block block_table[row][p / S] at
 * offset p % S. The keys of the call's own tokens were put there by kv_write before. A token's bits are the same
 * in a prompt of many tokens, in any part of it and alone; over an f32 cache they are attention's.
 * Paging: Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention", 2023. */
#ifndef SN_OPS_PAGED_ATTENTION_H
#define SN_OPS_PAGED_ATTENTION_H

#include "program/kernel.h"

enum { SN_PAGED_ATTENTION_HEAD_DIM, SN_PAGED_ATTENTION_WINDOW }; /* attrs.i */
enum { SN_PAGED_ATTENTION_SCALE };                               /* attrs.f */

extern const sn_kernel sn_paged_attention_cpu[];
extern const sn_kernel sn_paged_attention_avx2[];
extern const sn_kernel sn_paged_attention_avx512[];

#endif
