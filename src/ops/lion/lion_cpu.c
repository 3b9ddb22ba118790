#include "ops/lion/lion.h"
#include "ops/lion/lion_loops.h"

SN_ONE_KERNEL(sn_lion_cpu, "reference", SN_CPU_REFERENCE, NULL, lion_run);
