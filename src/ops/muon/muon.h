/* muon: one step of Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) for a matrix [R,C], as torch.optim.Muon computes it
 * but in f32: m += (1 - momentum)(g - m); u = g + momentum (m - g) (Nesterov); u is made nearly orthogonal by five steps of
 * Newton-Schulz, X = a X + (b A + c A A) X with A = X X^T over the shorter side, from u / |u|; then w = w (1 - lr weight_decay) -
 * lr scale X. bf16 weights and momenta are rounded stochastically. Nothing is written when clip[1] is 0.
 *
 * Inputs: w, g, m f32/bf16 (w's shape), hyper, clip, w16?. */
#ifndef SN_OPS_MUON_H
#define SN_OPS_MUON_H

#include "program/kernel.h"

enum { SN_MUON_PARAMETER = 0 /* int: number of the parameter, for the random key */ };
enum { SN_MUON_MOMENTUM = 0, SN_MUON_WEIGHT_DECAY = 1, SN_MUON_SCALE = 2 /* floats */ };
enum { SN_MUON_STEPS = 5 };

extern const sn_kernel sn_muon_cpu[], sn_muon_avx2[], sn_muon_avx512[];

#endif
