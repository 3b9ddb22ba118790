#include "ops/gelu/gelu.h"
#include "ops/gelu/gelu_loops.h"

SN_ONE_KERNEL(sn_gelu_avx512, "avx512", SN_CPU_AVX512, NULL, gelu_run);
SN_ONE_KERNEL(sn_gelu_grad_avx512, "avx512", SN_CPU_AVX512, NULL, gelu_grad_run);
