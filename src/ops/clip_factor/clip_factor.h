/* clip_factor: the global norm and what gradients are multiplied by. Attributes: max_norm (0: no clipping). */
#ifndef SN_OPS_CLIP_FACTOR_H
#define SN_OPS_CLIP_FACTOR_H

#include "program/kernel.h"

enum { SN_CLIP_FACTOR_MAX_NORM = 0 /* float */ };

extern const sn_kernel sn_clip_factor_cpu[];

#endif
