/* adamw: one step of AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019) with the arithmetic of
 * torch.optim.AdamW. bf16 weights and states are rounded stochastically. Nothing is written when clip[1] is 0. */
#ifndef SN_OPS_ADAMW_H
#define SN_OPS_ADAMW_H

#include "program/kernel.h"

enum {
    SN_ADAMW_PARAMETER = 0, /* int: number of the parameter, for the random key */
    SN_ADAMW_FIRST = 1      /* int: logical index of element 0, of a shard */
};
enum { SN_ADAMW_BETA1 = 0, SN_ADAMW_BETA2 = 1, SN_ADAMW_EPS = 2, SN_ADAMW_WEIGHT_DECAY = 3 /* floats */ };

extern const sn_kernel sn_adamw_cpu[], sn_adamw_avx2[], sn_adamw_avx512[];

#endif
