#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/adamw_8bit/adamw_8bit_loops.h"

SN_ONE_KERNEL(sn_adamw_8bit_cpu, "reference", SN_CPU_REFERENCE, NULL, adamw_8bit_run);
