#include "ops/swiglu/swiglu.h"
#include "ops/swiglu/swiglu_loops.h"

SN_ONE_KERNEL(sn_swiglu_avx2, "avx2", SN_CPU_AVX2, NULL, swiglu_run);
SN_ONE_KERNEL(sn_swiglu_grad_avx2, "avx2", SN_CPU_AVX2, NULL, swiglu_grad_run);
