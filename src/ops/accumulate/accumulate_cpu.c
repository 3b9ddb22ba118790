#include "ops/accumulate/accumulate.h"
#include "ops/accumulate/accumulate_loops.h"

SN_ONE_KERNEL(sn_accumulate_cpu, "reference", SN_CPU_REFERENCE, NULL, accumulate_run);
