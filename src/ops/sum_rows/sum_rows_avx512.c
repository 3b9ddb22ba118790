#include "ops/sum_rows/sum_rows.h"
#include "ops/sum_rows/sum_rows_loops.h"

SN_ONE_KERNEL(sn_sum_rows_avx512, "avx512", SN_CPU_AVX512, NULL, sum_rows_run);
