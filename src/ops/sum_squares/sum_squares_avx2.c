#include "ops/sum_squares/sum_squares.h"
#include "ops/sum_squares/sum_squares_loops.h"

SN_ONE_KERNEL(sn_sum_squares_avx2, "avx2", SN_CPU_AVX2, NULL, sum_squares_run);
