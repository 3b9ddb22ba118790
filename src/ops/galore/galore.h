/* galore: one step of AdamW in a subspace of a matrix (Zhao et al. 2024, arXiv 2403.03507). p [r, side] holds an orthonormal basis of
 * directions along the shorter side of w [R, C] (ops/subspace). The gradient there, p A (A: g, or its transpose when it is tall), is [r,
 * longer side], as are the moments; AdamW's step on it is taken back by p^T and added scale times. The weight decays as a whole. Nothing is
 * written when clip[1] is 0. */
#ifndef SN_OPS_GALORE_H
#define SN_OPS_GALORE_H

#include "program/kernel.h"

enum { SN_GALORE_PARAMETER = 0 /* int: number of the parameter, for the random key */ };
enum { SN_GALORE_SCALE = 4 /* float; 0 to 3 as adamw's */ };

extern const sn_kernel sn_galore_cpu[], sn_galore_avx2[], sn_galore_avx512[];

#endif
