/* accumulate: acc += x, in place. */
#ifndef SN_OPS_ACCUMULATE_H
#define SN_OPS_ACCUMULATE_H

#include "program/kernel.h"

extern const sn_kernel sn_accumulate_cpu[], sn_accumulate_avx2[], sn_accumulate_avx512[];

#endif
