#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/rms_norm_loops.h"

SN_ONE_KERNEL(sn_rms_norm_avx2, "avx2", SN_CPU_AVX2, NULL, rms_norm_run);
SN_ONE_KERNEL(sn_rms_norm_grad_avx2, "avx2", SN_CPU_AVX2, rms_norm_grad_scratch, rms_norm_grad_run);
