#ifndef SN_OPS_SPLIT_COLS_H
#define SN_OPS_SPLIT_COLS_H

#include "program/kernel.h"

enum { SN_SPLIT_COLS_PARTS = 3 };

extern const sn_kernel sn_split_cols_cpu[], sn_concat_cols_cpu[];

#endif
