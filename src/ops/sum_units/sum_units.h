/* sum_units: norms[slot] = the sum of units [n] f64 in index order. norms ! [m] f64; without norms the sum is the output, [1] f64. */
#ifndef SN_OPS_SUM_UNITS_H
#define SN_OPS_SUM_UNITS_H

#include "program/kernel.h"

enum { SN_SUM_UNITS_SLOT = 0 /* int */ };

extern const sn_kernel sn_sum_units_cpu[];

#endif
