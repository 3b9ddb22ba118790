/* all_gather: each rank holds a shard of ceil(units / ranks) * unit elements of the flattened tensor and gets all n elements.
 * Collective. */
#ifndef SN_OPS_ALL_GATHER_H
#define SN_OPS_ALL_GATHER_H

#include "program/kernel.h"

enum { SN_ALL_GATHER_AXIS = 0, /* int: mesh axis */ SN_ALL_GATHER_UNIT = 1, /* int: elements that stay together */ SN_ALL_GATHER_N = 2, /* int: logical elements */ SN_ALL_GATHER_RANKS = 3 /* int: ranks of the call; 0 in a graph, whose shapes are logical */ };

extern const sn_kernel sn_all_gather_cpu[];

#endif
