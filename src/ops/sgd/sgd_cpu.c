#include "ops/sgd/sgd.h"
#include "ops/sgd/sgd_loops.h"

SN_ONE_KERNEL(sn_sgd_cpu, "reference", SN_CPU_REFERENCE, NULL, sgd_run);
