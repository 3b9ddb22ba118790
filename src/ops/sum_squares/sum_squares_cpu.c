#include "ops/sum_squares/sum_squares.h"
#include "ops/sum_squares/sum_squares_loops.h"

SN_ONE_KERNEL(sn_sum_squares_cpu, "reference", SN_CPU_REFERENCE, sum_squares_scratch, sum_squares_run);
