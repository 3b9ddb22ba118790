/* copy: the same bytes. x, into? ! -> y; with `into`, of the same form and shape, they are written there and there is no
 * output. Attributes: tier of the result. */
#ifndef SN_OPS_COPY_H
#define SN_OPS_COPY_H

#include "program/kernel.h"

enum { SN_COPY_TIER = 0 /* int: sn_tier */ };

extern const sn_kernel sn_copy_cpu[];

#endif
