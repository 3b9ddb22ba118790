/* clip_factor: the global norm and what gradients are multiplied by. Attributes: max_norm (0: no clipping); late: updates were made
 * before, which is noted in the result. */
#ifndef SN_OPS_CLIP_FACTOR_H
#define SN_OPS_CLIP_FACTOR_H

#include "program/kernel.h"

enum { SN_CLIP_FACTOR_MAX_NORM = 0 /* float */ };
enum { SN_CLIP_FACTOR_LATE = 0 /* int */ };

extern const sn_kernel sn_clip_factor_cpu[];

#endif
