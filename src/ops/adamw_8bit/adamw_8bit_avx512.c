#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/adamw_8bit/adamw_8bit_loops.h"

SN_ONE_KERNEL(sn_adamw_8bit_avx512, "avx512", SN_CPU_AVX512, NULL, adamw_8bit_run);
