/* reduce_scatter: each rank holds a summand of n elements and gets its shard of the sum, ceil(units / ranks) * unit elements of
 * the flattened tensor. Sums are f32 in rank order, rounded once; what lies beyond n is zero. Collective. */
#ifndef SN_OPS_REDUCE_SCATTER_H
#define SN_OPS_REDUCE_SCATTER_H

#include "program/kernel.h"

enum {
    SN_REDUCE_SCATTER_AXIS = 0,
    /* int: sn_mesh_axis */ SN_REDUCE_SCATTER_UNIT = 1,
    /* int: elements that stay together */ SN_REDUCE_SCATTER_N = 2 /* int: elements of the whole tensor */
};

extern const sn_kernel sn_reduce_scatter_cpu[];

#endif
