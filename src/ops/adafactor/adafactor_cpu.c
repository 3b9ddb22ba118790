#include "ops/adafactor/adafactor.h"
#include "ops/adafactor/adafactor_loops.h"

SN_ONE_KERNEL(sn_adafactor_cpu, "reference", SN_CPU_REFERENCE, sn_adafactor_scratch, adafactor_run);
