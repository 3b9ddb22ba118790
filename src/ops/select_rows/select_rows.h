/* select_rows: rows of an activation by index; an index outside it gives zeros. */
#ifndef SN_OPS_SELECT_ROWS_H
#define SN_OPS_SELECT_ROWS_H

#include "program/kernel.h"

extern const sn_kernel sn_select_rows_cpu[];

#endif
