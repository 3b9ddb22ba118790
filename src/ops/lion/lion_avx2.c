#include "ops/lion/lion.h"
#include "ops/lion/lion_loops.h"

SN_ONE_KERNEL(sn_lion_avx2, "avx2", SN_CPU_AVX2, NULL, lion_run);
