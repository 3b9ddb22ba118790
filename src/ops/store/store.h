/* store: a value into the disk arena, on the io queue. x, into ! -> nothing; `into`, of x's form and shape, is never in memory: its
 * place is sn_call.disk_offset. It may go on when the kernel has returned (program/files.h, sn_disk_start). A kernel that can fail when it
 * runs (program/kernel.h, status). */
#ifndef SN_OPS_STORE_STORE_H
#define SN_OPS_STORE_STORE_H

#include "program/kernel.h"

extern const sn_kernel sn_store_cpu[];

#endif
