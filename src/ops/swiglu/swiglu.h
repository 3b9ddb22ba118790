/* swiglu: silu(gate) * up with silu(x) = x / (1 + e^-x) (Shazeer, "GLU Variants Improve Transformer", 2020), and its
 * gradient. */
#ifndef SN_OPS_SWIGLU_H
#define SN_OPS_SWIGLU_H

#include "program/kernel.h"

extern const sn_kernel sn_swiglu_cpu[], sn_swiglu_avx2[], sn_swiglu_avx512[];
extern const sn_kernel sn_swiglu_grad_cpu[], sn_swiglu_grad_avx2[], sn_swiglu_grad_avx512[];

#endif
