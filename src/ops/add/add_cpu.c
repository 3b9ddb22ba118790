#include "ops/add/add.h"
#include "ops/add/add_loops.h"

SN_ONE_KERNEL(sn_add_cpu, "reference", SN_CPU_REFERENCE, NULL, add_run);
