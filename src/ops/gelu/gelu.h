/* gelu (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016), and its gradient. Attributes: exact = 0 is the tanh
 * approximation, "gelu_new"; exact = 1 is the form with erf. */
#ifndef SN_OPS_GELU_H
#define SN_OPS_GELU_H

#include "program/kernel.h"

enum { SN_GELU_EXACT = 0 /* int; of gelu and gelu_grad */ };

extern const sn_kernel sn_gelu_cpu[], sn_gelu_avx2[], sn_gelu_avx512[];
extern const sn_kernel sn_gelu_grad_cpu[], sn_gelu_grad_avx2[], sn_gelu_grad_avx512[];

#endif
