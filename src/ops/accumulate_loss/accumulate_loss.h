/* accumulate_loss: total[0] += sum of the token losses in index order, in f64; total[1] += number of labels. */
#ifndef SN_OPS_ACCUMULATE_LOSS_H
#define SN_OPS_ACCUMULATE_LOSS_H

#include "program/kernel.h"

enum { SN_NO_LABEL = -100 }; /* label of a token without loss */

extern const sn_kernel sn_accumulate_loss_cpu[];

#endif
