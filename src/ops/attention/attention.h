/* attention: causal attention over packed sequences, with grouped key/value heads and an optional sliding window.
 *
 *   q act [T, H*D], k act [T, G*D], v act [T, G*D], seq_start i32 [T]
 *     -> o [T, H*D] (form of q), lse f32 [T, H]: logarithm of the sum of exp(scale q.k) over the keys a row sees
 *
 * Token t sees keys max(seq_start[t], t - window + 1) .. t; window 0: no window. Query head h reads key/value head
 * h / (H/G). Everything is computed in f32 with an online softmax (Milakov & Gimelshein 2018; Dao, FlashAttention-2,
 * 2023), so no memory grows with T * T. A row's bits depend on its own sequence only, and on its offset in that
 * sequence, not on where the sequence stands in the batch. */
#ifndef SN_OPS_ATTENTION_H
#define SN_OPS_ATTENTION_H

#include "program/kernel.h"

enum { SN_ATTENTION_HEAD_DIM, SN_ATTENTION_WINDOW }; /* attrs.i */
enum { SN_ATTENTION_SCALE };                         /* attrs.f */

/* Whether q, k and v (inputs `first` .. `first` + 2) fit together under the attributes; for attention and its gradient. */
sn_status sn_attention_check(const sn_call *c, const char *op, int first);

/* Pairs (query, key) that T tokens of one sequence visit under this window: what costs are counted from. */
double sn_attention_pairs(int64_t n_tokens, int64_t window);

extern const sn_kernel sn_attention_cpu[];
extern const sn_kernel sn_attention_avx2[];
extern const sn_kernel sn_attention_avx512[];

#endif
