#include "ops/rms_norm/rms_norm.h"
#include "ops/rms_norm/rms_norm_loops.h"

SN_ONE_KERNEL(sn_rms_norm_cpu, "reference", SN_CPU_REFERENCE, NULL, rms_norm_run);
SN_ONE_KERNEL(sn_rms_norm_grad_cpu, "reference", SN_CPU_REFERENCE, rms_norm_grad_scratch, rms_norm_grad_run);
