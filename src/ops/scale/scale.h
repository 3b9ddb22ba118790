/* scale: alpha a. Attributes: alpha. */
#ifndef SN_OPS_SCALE_H
#define SN_OPS_SCALE_H

#include "program/kernel.h"

enum { SN_SCALE_ALPHA = 0 /* float */ };

extern const sn_kernel sn_scale_cpu[], sn_scale_avx2[], sn_scale_avx512[];

#endif
