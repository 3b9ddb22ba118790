/* copy: the same bytes. Attributes: tier of the result. */
#ifndef SN_OPS_COPY_H
#define SN_OPS_COPY_H

#include "program/kernel.h"

enum { SN_COPY_TIER = 0 /* int: sn_tier */ };

extern const sn_kernel sn_copy_cpu[];

#endif
