/* sum_squares: norms[slot] = sum of squares of g in f64: units of SN_SUM_SQUARES_UNIT elements, then units in index order. */
#ifndef SN_OPS_SUM_SQUARES_H
#define SN_OPS_SUM_SQUARES_H

#include "program/kernel.h"

enum { SN_SUM_SQUARES_SLOT = 0 /* int */ };
enum { SN_SUM_SQUARES_UNIT = 4096 /* elements of one unit */ };

extern const sn_kernel sn_sum_squares_cpu[], sn_sum_squares_avx2[], sn_sum_squares_avx512[];

#endif
