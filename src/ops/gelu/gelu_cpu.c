#include "ops/gelu/gelu.h"
#include "ops/gelu/gelu_loops.h"

SN_ONE_KERNEL(sn_gelu_cpu, "reference", SN_CPU_REFERENCE, NULL, gelu_run);
SN_ONE_KERNEL(sn_gelu_grad_cpu, "reference", SN_CPU_REFERENCE, NULL, gelu_grad_run);
