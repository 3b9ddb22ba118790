#include "ops/sum_rows/sum_rows.h"
#include "ops/sum_rows/sum_rows_loops.h"

SN_ONE_KERNEL(sn_sum_rows_cpu, "reference", SN_CPU_REFERENCE, NULL, sum_rows_run);
