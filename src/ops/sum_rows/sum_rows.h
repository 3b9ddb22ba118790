/* sum_rows: the sum of all rows, in index order, in f32. Attributes: form of the result. */
#ifndef SN_OPS_SUM_ROWS_H
#define SN_OPS_SUM_ROWS_H

#include "program/kernel.h"

enum { SN_SUM_ROWS_DTYPE = 0 /* int */ };

extern const sn_kernel sn_sum_rows_cpu[], sn_sum_rows_avx2[], sn_sum_rows_avx512[];

#endif
