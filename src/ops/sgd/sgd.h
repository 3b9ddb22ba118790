/* sgd: one step of torch.optim.SGD, with or without momentum. bf16 weights and momenta are rounded stochastically. Nothing is
 * written when clip[1] is 0. */
#ifndef SN_OPS_SGD_H
#define SN_OPS_SGD_H

#include "program/kernel.h"

enum {
    SN_SGD_PARAMETER = 0, /* int: number of the parameter, for the random key */
    SN_SGD_FIRST = 1      /* int: logical index of element 0, of a shard */
};
enum { SN_SGD_MOMENTUM = 0, SN_SGD_WEIGHT_DECAY = 1 /* floats */ };

extern const sn_kernel sn_sgd_cpu[], sn_sgd_avx2[], sn_sgd_avx512[];

#endif
