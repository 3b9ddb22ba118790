/* shift: x of every rank goes to the next along a mesh axis, that of the last to the first: x -> y of the same shape, what the rank
 * before had. All shards are of one size. Collective; the next step of a ring. */
#ifndef SN_OPS_SHIFT_H
#define SN_OPS_SHIFT_H

#include "program/kernel.h"

enum { SN_SHIFT_AXIS = 0 /* int: sn_mesh_axis */ };

extern const sn_kernel sn_shift_cpu[];

#endif
