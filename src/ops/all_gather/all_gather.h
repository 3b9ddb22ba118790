/* all_gather: each rank holds a shard of ceil(units / ranks) * unit elements of the flattened tensor and gets all n elements.
 * Collective. */
#ifndef SN_OPS_ALL_GATHER_H
#define SN_OPS_ALL_GATHER_H

#include "program/kernel.h"

enum {
    SN_ALL_GATHER_AXIS = 0,
    /* int: sn_mesh_axis */ SN_ALL_GATHER_UNIT = 1,
    /* int: elements that stay together */ SN_ALL_GATHER_N = 2 /* int: elements of the whole tensor */
};

extern const sn_kernel sn_all_gather_cpu[];

#endif
