#include "ops/gelu/gelu.h"
#include "ops/gelu/gelu_loops.h"

SN_ONE_KERNEL(sn_gelu_avx2, "avx2", SN_CPU_AVX2, NULL, gelu_run);
SN_ONE_KERNEL(sn_gelu_grad_avx2, "avx2", SN_CPU_AVX2, NULL, gelu_grad_run);
