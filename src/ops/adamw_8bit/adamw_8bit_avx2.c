#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/adamw_8bit/adamw_8bit_loops.h"

SN_ONE_KERNEL(sn_adamw_8bit_avx2, "avx2", SN_CPU_AVX2, NULL, adamw_8bit_run);
