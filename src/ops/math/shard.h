/* Flat shards of a tensor: each rank holds ceil(units / ranks) units, the last ones fewer or none. */
#ifndef SN_OPS_MATH_SHARD_H
#define SN_OPS_MATH_SHARD_H

#include "base/mem.h"
#include "tensor/shape.h"

/* Elements of a row of the first dimension, at least 1. */
static inline int64_t sn_row_elements(const sn_shape *s) {
    int64_t n = 1;
    for (int d = 1; d < s->rank; d++) n *= s->d[d];
    return n > 0 ? n : 1;
}

/* Elements of a full shard; rank r's begins at r times as many. n >= 0, unit >= 1, ranks >= 1. */
static inline int64_t sn_shard(int64_t n, int64_t unit, int64_t ranks) {
    int64_t units = n / unit + (n % unit != 0);
    return (units / ranks + (units % ranks != 0)) * unit;
}

/* How many elements this rank holds. */
static inline int64_t sn_shard_used(int64_t n, int64_t shard, int64_t rank) {
    int64_t left = n - shard * rank;
    return left < 0 ? 0 : left < shard ? left : shard;
}

#endif
