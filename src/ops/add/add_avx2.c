#include "ops/add/add.h"
#include "ops/add/add_loops.h"

SN_ONE_KERNEL(sn_add_avx2, "avx2", SN_CPU_AVX2, NULL, add_run);
