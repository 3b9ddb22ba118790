#include "ops/accumulate/accumulate.h"
#include "ops/accumulate/accumulate_loops.h"

SN_ONE_KERNEL(sn_accumulate_avx2, "avx2", SN_CPU_AVX2, NULL, accumulate_run);
