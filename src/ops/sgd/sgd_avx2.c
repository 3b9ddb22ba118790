#include "ops/sgd/sgd.h"
#include "ops/sgd/sgd_loops.h"

SN_ONE_KERNEL(sn_sgd_avx2, "avx2", SN_CPU_AVX2, NULL, sgd_run);
