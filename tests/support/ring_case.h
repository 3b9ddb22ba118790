/* Attention over a sequence cut for a ring, in the tests of ring_attention and its gradient: which rank holds what, and the calls. */
#ifndef SN_TESTS_RING_CASE_H
#define SN_TESTS_RING_CASE_H

#include "support/attention_case.h"

typedef struct ring_case {
    int64_t n, heads, kv_heads, d, window;
    int32_t starts[8];
    int n_starts, ranks; /* n is a multiple of 2 ranks */
    sn_dtype form;
} ring_case;

/* The logical token at local place i of a rank: runs `rank` and 2 ranks - 1 - rank of 2 ranks. */
int64_t ring_token(const ring_case *a, int rank, int64_t i);

/* The rows of x that a rank holds. */
sn_tensor ring_rows(const ring_case *a, const sn_tensor *x, int rank);
/* 0, 1 .. n - 1 as a vector. */
sn_tensor ring_places(int64_t n);

/* Puts a rank's rows back. */
void ring_put(const ring_case *a, const sn_tensor *from, int rank, sn_tensor *to);

/* The whole forward pass by one kernel of ring_attention: o f32 [n, H*D] and lse [n, H] of whole q, k, v and seq_start. In place:
 * each step's state over the one before. */
void ring_forward(const ring_case *a, const sn_kernel *kernel, const sn_tensor *qkv, const sn_tensor *seq_start, int threads, bool in_place,
                  sn_tensor *o, sn_tensor *lse);

#endif
