/* What the SIMD kernels of ring_attention and its gradient share: which keys a query sees. */
#ifndef SN_OPS_RING_ATTENTION_CORE_H
#define SN_OPS_RING_ATTENTION_CORE_H

#include "ops/attention/attention_core.h"

/* Elements of ascending x[n] that are below `value`. */
static inline int64_t sn_count_below(const int32_t *x, int64_t n, int64_t value) {
    int64_t from = 0, to = n;
    while (from < to) {
        int64_t mid = from + (to - from) / 2;
        if (x[mid] < value) from = mid + 1;
        else to = mid;
    }
    return from;
}

/* The logical place of the first key that token t sees. */
static inline int64_t sn_first_place(const int32_t *index, const int32_t *seq_start, int64_t t, int64_t window) {
    int64_t from = window > 0 ? (int64_t)index[t] - window + 1 : 0;
    return from > seq_start[t] ? from : seq_start[t];
}

/* What they take, and the scratch: as attention and attention_grad (attention_core.h). */
void sn_ring_attention_run(const sn_call *c, const sn_attention_isa *isa);
void sn_ring_attention_grad_run(const sn_call *c, const sn_attention_isa *isa);

#endif
