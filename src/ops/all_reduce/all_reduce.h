/* all_reduce: small summands together, so that they cost one collective: x1, into1, x2, into2, ... of equal shapes two by two. Each x is a
 * summand on every rank; its sum over the ranks (f32 in rank order, rounded to x's form) is written to `into`, or added there. Collective.
 */
#ifndef SN_OPS_ALL_REDUCE_H
#define SN_OPS_ALL_REDUCE_H

#include "program/kernel.h"

enum {
    SN_ALL_REDUCE_AXIS = 0,  /* int: sn_mesh_axis */
    SN_ALL_REDUCE_RANKS = 1, /* int: of the mesh axis */
    SN_ALL_REDUCE_ADDS = 2   /* int: bit k: the k-th sum is added to `into` instead of written */
};
enum { SN_ALL_REDUCE_MOST = SN_MAX_IN / 2 };

extern const sn_kernel sn_all_reduce_cpu[];

#endif
