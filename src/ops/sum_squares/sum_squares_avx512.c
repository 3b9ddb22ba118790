#include "ops/sum_squares/sum_squares.h"
#include "ops/sum_squares/sum_squares_loops.h"

SN_ONE_KERNEL(sn_sum_squares_avx512, "avx512", SN_CPU_AVX512, NULL, sum_squares_run);
