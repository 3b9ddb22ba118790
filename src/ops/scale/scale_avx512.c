#include "ops/scale/scale.h"
#include "ops/scale/scale_loops.h"

SN_ONE_KERNEL(sn_scale_avx512, "avx512", SN_CPU_AVX512, NULL, scale_run);
