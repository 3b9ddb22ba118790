#include "ops/lion/lion.h"
#include "ops/lion/lion_loops.h"

SN_ONE_KERNEL(sn_lion_avx512, "avx512", SN_CPU_AVX512, NULL, lion_run);
