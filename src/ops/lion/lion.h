/* lion: one step of Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, arXiv 2302.06675) with decoupled
 * weight decay: u = beta1 m + (1 - beta1) g; w -= lr (sign(u) + weight_decay w); m = beta2 m + (1 - beta2) g. bf16 weights and
 * moments are rounded stochastically. Nothing is written when clip[1] is 0. */
#ifndef SN_OPS_LION_H
#define SN_OPS_LION_H

#include "program/kernel.h"

enum {
    SN_LION_PARAMETER = 0, /* int: number of the parameter, for the random key */
    SN_LION_FIRST = 1      /* int: logical index of element 0, of a shard */
};
enum { SN_LION_BETA1 = 0, SN_LION_BETA2 = 1, SN_LION_WEIGHT_DECAY = 2 /* floats */ };

extern const sn_kernel sn_lion_cpu[], sn_lion_avx2[], sn_lion_avx512[];

#endif
