#include "ops/scale/scale.h"
#include "ops/scale/scale_loops.h"

SN_ONE_KERNEL(sn_scale_avx2, "avx2", SN_CPU_AVX2, NULL, scale_run);
