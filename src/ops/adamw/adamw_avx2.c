#include "ops/adamw/adamw.h"
#include "ops/adamw/adamw_loops.h"

SN_ONE_KERNEL(sn_adamw_avx2, "avx2", SN_CPU_AVX2, NULL, adamw_run);
