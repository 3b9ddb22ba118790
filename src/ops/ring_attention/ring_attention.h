/* ring_attention: one step of attention over a sequence that lies spread over ranks. This rank's queries meet the keys and
 * values that visit it, and what they have seen so far is brought up to date.
 *
 *   q act [T, H*D], k act [S, G*D], v act [S, G*D], index i32 [T], key_index i32 [S], seq_start i32 [T],
 *   o f32 [T, H*D] (optional), lse f32 [T, H] (with o)
 *     -> o f32 [T, H*D], lse f32 [T, H]: over all keys met so far; a row that has met none has o = 0, lse = -infinity
 *
 * index and key_index are the logical places of the tokens, ascending; seq_start is logical too and does not fall. The query
 * at place i sees the keys at places max(seq_start, i - window + 1) .. i; window 0: no window. Softmax, heads and sums as in
 * attention. The state is normalised, (o, lse) for (O, m, l): a third less to carry of what counts, and as sound in f32.
 * The output may take the place of the state that came in. Sources: Liu et al. 2023 (arXiv 2310.01889); Milakov & Gimelshein 2018. */
#ifndef SN_OPS_RING_ATTENTION_H
#define SN_OPS_RING_ATTENTION_H

#include "program/kernel.h"

enum { SN_RING_ATTENTION_HEAD_DIM, SN_RING_ATTENTION_WINDOW }; /* attrs.i, as attention's */
enum { SN_RING_ATTENTION_SCALE };                              /* attrs.f */

/* Whether q, k, v and the places of their tokens fit together under the attributes: inputs `first` .. `first` + 2, and `places`
 * .. `places` + 2. For this op and its gradient. */
sn_status sn_ring_attention_check(const sn_call *c, const char *op, int first, int places);

/* Pairs (query, key) that such a step visits, of n_tokens queries and n_keys keys: where tokens are dealt to ranks so that all
 * have as much to do, half of them. */
double sn_ring_attention_pairs(int64_t n_tokens, int64_t n_keys, int64_t window);

extern const sn_kernel sn_ring_attention_cpu[];
extern const sn_kernel sn_ring_attention_avx2[];
extern const sn_kernel sn_ring_attention_avx512[];

#endif
