/* reduce_scatter: each rank holds a summand x and gets its flat shard of the sum: ceil(units / ranks) units of the flattened
 * tensor, the last ranks fewer or none. Logical shapes are equal. Or of ceil(units / ranks) units of its rows. Sums are f32 (of f64: f64)
 * in rank order, rounded once. Collective. */
#ifndef SN_OPS_REDUCE_SCATTER_H
#define SN_OPS_REDUCE_SCATTER_H

#include "program/kernel.h"

enum {
    SN_REDUCE_SCATTER_AXIS = 0,  /* int: sn_mesh_axis */
    SN_REDUCE_SCATTER_UNIT = 1,  /* int: elements that stay together */
    SN_REDUCE_SCATTER_RANKS = 2, /* int: of the mesh axis */
    SN_REDUCE_SCATTER_COPIES = 3 /* int: 1: the comm copies (program/comm.h), so that summands of other ranks need scratch */,
    SN_REDUCE_SCATTER_ROWS = 4 /* int: 1: the shard is one of the first dimension, and the unit counts rows */
};

/* y[first .. first + n) = the sum of all pieces, n elements in the form of y each, as above; for all_reduce too. */
void sn_sum_pieces(const sn_tensor *y, int64_t first, int64_t n, const void *const *pieces, int ranks);

extern const sn_kernel sn_reduce_scatter_cpu[];

#endif
