/* rms_norm: y = x / sqrt(mean(x^2) + eps) * w, a row at a time (Zhang and Sennrich, "Root Mean Square Layer
 * Normalization", 2019), and its gradient. */
#ifndef SN_OPS_RMS_NORM_H
#define SN_OPS_RMS_NORM_H

#include "program/kernel.h"

enum { SN_RMS_NORM_EPS = 0 /* float */ };
enum { SN_RMS_NORM_GRAD_WANT_DW = 0 /* int */ };

extern const sn_kernel sn_rms_norm_cpu[], sn_rms_norm_avx2[], sn_rms_norm_avx512[];
extern const sn_kernel sn_rms_norm_grad_cpu[], sn_rms_norm_grad_avx2[], sn_rms_norm_grad_avx512[];

#endif
