#include "ops/swiglu/swiglu.h"
#include "ops/swiglu/swiglu_loops.h"

SN_ONE_KERNEL(sn_swiglu_avx512, "avx512", SN_CPU_AVX512, NULL, swiglu_run);
SN_ONE_KERNEL(sn_swiglu_grad_avx512, "avx512", SN_CPU_AVX512, NULL, swiglu_grad_run);
