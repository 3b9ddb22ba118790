#include "ops/adamw/adamw.h"
#include "ops/adamw/adamw_loops.h"

SN_ONE_KERNEL(sn_adamw_cpu, "reference", SN_CPU_REFERENCE, NULL, adamw_run);
