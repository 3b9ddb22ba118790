#include "ops/scale/scale.h"
#include "ops/scale/scale_loops.h"

SN_ONE_KERNEL(sn_scale_cpu, "reference", SN_CPU_REFERENCE, NULL, scale_run);
