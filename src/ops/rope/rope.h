/* rope: turns pairs of each head by the angles of a rope_table.
 *
 *   x act [T, H*D], table f32 [T, R] -> y like x
 *   y[i] = x[i] cos_i - x[i + R/2] sin_i, y[i + R/2] = x[i + R/2] cos_i + x[i] sin_i for i < R/2 of every head;
 *   elements R .. D-1 of a head are copied (partial rotary).
 *
 * inverse = 1 turns back: the gradient of inverse = 0. y may lie on x. */
#ifndef SN_OPS_ROPE_H
#define SN_OPS_ROPE_H

#include "program/kernel.h"

enum { SN_ROPE_HEAD_DIM, SN_ROPE_INVERSE }; /* attrs.i */

extern const sn_kernel sn_rope_cpu[];
extern const sn_kernel sn_rope_avx2[];
extern const sn_kernel sn_rope_avx512[];

#endif
