#include "ops/sgd/sgd.h"
#include "ops/sgd/sgd_loops.h"

SN_ONE_KERNEL(sn_sgd_avx512, "avx512", SN_CPU_AVX512, NULL, sgd_run);
