/* layer_norm: y = (x - mean) / sqrt(variance + eps) * w + b, a row at a time (Ba, Kiros and Hinton, "Layer
 * Normalization", 2016), and its gradient. */
#ifndef SN_OPS_LAYER_NORM_H
#define SN_OPS_LAYER_NORM_H

#include "program/kernel.h"

enum { SN_LAYER_NORM_EPS = 0 /* float */ };
enum { SN_LAYER_NORM_GRAD_WANT_DW = 0, SN_LAYER_NORM_GRAD_WANT_DB = 1 /* ints */ };

extern const sn_kernel sn_layer_norm_cpu[], sn_layer_norm_avx2[], sn_layer_norm_avx512[];
extern const sn_kernel sn_layer_norm_grad_cpu[], sn_layer_norm_grad_avx2[], sn_layer_norm_grad_avx512[];

#endif
