#include "ops/accumulate/accumulate.h"
#include "ops/accumulate/accumulate_loops.h"

SN_ONE_KERNEL(sn_accumulate_avx512, "avx512", SN_CPU_AVX512, NULL, accumulate_run);
