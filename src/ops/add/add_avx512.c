#include "ops/add/add.h"
#include "ops/add/add_loops.h"

SN_ONE_KERNEL(sn_add_avx512, "avx512", SN_CPU_AVX512, NULL, add_run);
