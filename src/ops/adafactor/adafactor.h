/* adafactor: one step of Adafactor (Shazeer and Stern 2018, arXiv 1804.04235) without a first moment, at the given learning rate:
 * of a matrix only the means of squared gradients of each row and of each column are kept, of anything else all second moments.
 * The arithmetic is that of transformers' Adafactor with scale_parameter and relative_step off: the decay of step t is
 * 1 - t^-0.8, 1e-30 is added to squared gradients, the update is divided by max(1, its root mean square); weight decay
 * is decoupled. bf16 weights are rounded stochastically. Nothing is written when clip[1] is 0.
 *
 * Inputs of a matrix [R,C]: w, g, row f32 [R], col f32 [C], hyper, clip, w16?. Of others: w, g, v f32 (w's shape), none, hyper, clip, w16?.
 * Means and the root mean square are f64 sums, of a row (or piece) in SN_LANES parts, then in index order. */
#ifndef SN_OPS_ADAFACTOR_H
#define SN_OPS_ADAFACTOR_H

#include "program/kernel.h"

enum { SN_ADAFACTOR_PARAMETER = 0 /* int: number of the parameter, for the random key */ };
enum { SN_ADAFACTOR_WEIGHT_DECAY = 0 /* float */ };

/* A double for each row (matrices) or piece, then a float for each column. */
size_t sn_adafactor_scratch(const sn_call *c, int n_threads);

extern const sn_kernel sn_adafactor_cpu[], sn_adafactor_avx2[], sn_adafactor_avx512[];

#endif
