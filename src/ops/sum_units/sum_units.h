/* sum_units: the sum of units [n] f64 in index order: norms[slot], of norms ! [m] f64; without norms the output, [1] f64. Inputs: units,
 * norms?. */
#ifndef SN_OPS_SUM_UNITS_H
#define SN_OPS_SUM_UNITS_H

#include "program/kernel.h"

enum { SN_SUM_UNITS_SLOT = 0 /* int */ };

extern const sn_kernel sn_sum_units_cpu[];

#endif
