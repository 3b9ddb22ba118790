/* all_gather: each rank holds a flat shard of ceil(units / ranks) units of x, the last ranks fewer or none, and gets the whole:
 * x -> y of the same logical shape. Or of ceil(units / ranks) units of its rows. With `into` (optional, of that shape too) the whole is
 * written there and there is no output; x may be this rank's part of `into` itself. Collective. */
#ifndef SN_OPS_ALL_GATHER_H
#define SN_OPS_ALL_GATHER_H

#include "program/kernel.h"

enum {
    SN_ALL_GATHER_AXIS = 0, /* int: sn_mesh_axis */
    SN_ALL_GATHER_UNIT = 1, /* int: elements that stay together */
    SN_ALL_GATHER_ROWS = 2  /* int: 1: x is a shard of the first dimension, and the unit counts rows */
};

extern const sn_kernel sn_all_gather_cpu[];

#endif
