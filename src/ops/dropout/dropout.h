/* dropout: x / (1 - p), or 0 with probability p. Whether an element is kept depends on the key input, the site and the
 * logical row and column alone: x [T, K], key u32 [4], index i32 [T] (optional: the logical rows, from the key's row base on; without it
 * they follow each other from first_row). The gradient is dropout of dy by the same key and site. Attributes: site, p. */
#ifndef SN_OPS_DROPOUT_H
#define SN_OPS_DROPOUT_H

#include "program/kernel.h"

enum { SN_DROPOUT_SITE = 0, SN_DROPOUT_FIRST_ROW = 1, SN_DROPOUT_FIRST_COLUMN = 2 /* ints; beyond the key's row base */ };
enum { SN_DROPOUT_P = 0 /* float */ };

extern const sn_kernel sn_dropout_cpu[], sn_dropout_avx2[], sn_dropout_avx512[];

#endif
