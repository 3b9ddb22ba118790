#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/rms_norm_loops.h"

SN_ONE_KERNEL(sn_rms_norm_avx512, "avx512", SN_CPU_AVX512, NULL, rms_norm_run);
SN_ONE_KERNEL(sn_rms_norm_grad_avx512, "avx512", SN_CPU_AVX512, rms_norm_grad_scratch, rms_norm_grad_run);
