#include "ops/sum_rows/sum_rows.h"
#include "ops/sum_rows/sum_rows_loops.h"

SN_ONE_KERNEL(sn_sum_rows_avx2, "avx2", SN_CPU_AVX2, NULL, sum_rows_run);
