/* subspace: rows of p [r, side] become an orthonormal basis of the r leading singular directions of g [R, C] along its shorter side (side =
 * min(R, C): the columns' side of a tall g, the rows' of a wide one) in the updates 1, 1 + gap, 1 + 2 gap, ...; in others p stays. Nothing
 * is written when clip[1] is 0.
 *
 * By subspace iteration (Halko, Martinsson, Tropp 2011, arXiv 0909.4061, algorithm 4.4) from r random vectors, Philox by (seed, update,
 * parameter): SN_SUBSPACE_STEPS times both products with g, each followed by Householder's orthogonalisation, which gives orthonormal rows
 * for a g of lower rank, too. */
#ifndef SN_OPS_SUBSPACE_H
#define SN_OPS_SUBSPACE_H

#include "program/kernel.h"

enum { SN_SUBSPACE_PARAMETER = 0, SN_SUBSPACE_GAP = 1 /* ints */ };
enum { SN_SUBSPACE_STEPS = 4 };

/* Whether input `basis`, p, fits input `of`, a matrix called `arg`. For this op and galore. */
sn_status sn_subspace_check(const char *op, const sn_call *c, int of, const char *arg, int basis);

extern const sn_kernel sn_subspace_cpu[], sn_subspace_avx2[], sn_subspace_avx512[];

#endif
