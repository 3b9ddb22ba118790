/* add: a + alpha b. Attributes: alpha. */
#ifndef SN_OPS_ADD_H
#define SN_OPS_ADD_H

#include "program/kernel.h"

enum { SN_ADD_ALPHA = 0 /* float */ };

extern const sn_kernel sn_add_cpu[], sn_add_avx2[], sn_add_avx512[];

#endif
