/* all_gather: each rank holds a shard of ceil(units / ranks) * unit elements of the flattened tensor and gets the whole.
 * Collective. */
#ifndef SN_OPS_ALL_GATHER_H
#define SN_OPS_ALL_GATHER_H

#include "program/kernel.h"

enum {
    SN_ALL_GATHER_AXIS = 0,     /* int: sn_mesh_axis */
    SN_ALL_GATHER_UNIT = 1,     /* int: elements that stay together */
    SN_ALL_GATHER_ELEMENTS = 2, /* int: of the whole tensor */
    SN_ALL_GATHER_ROWS = 3      /* int: the result is [rows, elements / rows]; 0: it is [elements] */
};

extern const sn_kernel sn_all_gather_cpu[];

#endif
