/* Shards of a flattened tensor: each rank holds ceil(units / ranks) units, the last ones fewer or none, padding zero. */
#ifndef SN_OPS_MATH_SHARD_H
#define SN_OPS_MATH_SHARD_H

#include "base/mem.h"

/* Elements of one rank's shard; false when it does not fit. n >= 0, unit >= 1, ranks >= 1. */
static inline bool sn_shard_elements(int64_t n, int64_t unit, int64_t ranks, int64_t *out) {
    int64_t units = n / unit + (n % unit != 0);
    return sn_mul_i64(units / ranks + (units % ranks != 0), unit, out);
}

/* How many of them are elements of the tensor, for this rank. */
static inline int64_t sn_shard_used(int64_t n, int64_t shard, int64_t rank) {
    int64_t left = n - shard * rank;
    return left < 0 ? 0 : left < shard ? left : shard;
}

#endif
