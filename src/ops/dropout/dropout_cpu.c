#include "ops/dropout/dropout.h"
#include "ops/dropout/dropout_loops.h"

SN_ONE_KERNEL(sn_dropout_cpu, "reference", SN_CPU_REFERENCE, NULL, dropout_run);
