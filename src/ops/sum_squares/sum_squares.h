/* sum_squares: g of any form -> [ceil(n / SN_SUM_SQUARES_UNIT)] f64, the sum of squares of each unit of elements in index order.
 * A unit's bits depend on its elements alone, so shards of whole units give the units of the whole. */
#ifndef SN_OPS_SUM_SQUARES_H
#define SN_OPS_SUM_SQUARES_H

#include "program/kernel.h"

enum { SN_SUM_SQUARES_UNIT = 4096 /* elements of one unit */ };

extern const sn_kernel sn_sum_squares_cpu[], sn_sum_squares_avx2[], sn_sum_squares_avx512[];

#endif
