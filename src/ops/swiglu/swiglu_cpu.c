#include "ops/swiglu/swiglu.h"
#include "ops/swiglu/swiglu_loops.h"

SN_ONE_KERNEL(sn_swiglu_cpu, "reference", SN_CPU_REFERENCE, NULL, swiglu_run);
SN_ONE_KERNEL(sn_swiglu_grad_cpu, "reference", SN_CPU_REFERENCE, NULL, swiglu_grad_run);
