#include "ops/sum_squares/sum_squares.h"
#include "ops/sum_squares/sum_squares_loops.h"

SN_ONE_KERNEL(sn_sum_squares_cpu, "reference", SN_CPU_REFERENCE, NULL, sum_squares_run);
