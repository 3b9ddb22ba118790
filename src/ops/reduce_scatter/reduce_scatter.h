/* reduce_scatter: each rank holds a summand of the same elements and gets its shard of the sum: ceil(units / ranks) * unit
 * elements of the flattened tensor. Sums are f32 in rank order, rounded once; what lies beyond the elements is zero.
 * Collective. */
#ifndef SN_OPS_REDUCE_SCATTER_H
#define SN_OPS_REDUCE_SCATTER_H

#include "program/kernel.h"

enum {
    SN_REDUCE_SCATTER_AXIS = 0,     /* int: sn_mesh_axis */
    SN_REDUCE_SCATTER_UNIT = 1,     /* int: elements that stay together */
    SN_REDUCE_SCATTER_ELEMENTS = 2, /* int: of the whole tensor */
    SN_REDUCE_SCATTER_RANKS = 3     /* int: of the mesh axis */
};

extern const sn_kernel sn_reduce_scatter_cpu[];

#endif
