#include "ops/adamw/adamw.h"
#include "ops/adamw/adamw_loops.h"

SN_ONE_KERNEL(sn_adamw_avx512, "avx512", SN_CPU_AVX512, NULL, adamw_run);
