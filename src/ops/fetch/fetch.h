/* fetch: a value, or rows of it, from the disk arena, on the io queue. x -> y of the same form and shape. x is never in memory:
 * its place is sn_call.disk_offset. It may go on when the kernel has returned (program/files.h, sn_disk_start). A kernel that can fail when
 * it runs (program/kernel.h, status). */
#ifndef SN_OPS_FETCH_FETCH_H
#define SN_OPS_FETCH_FETCH_H

#include "program/kernel.h"

extern const sn_kernel sn_fetch_cpu[];

#endif
