#include "ops/adafactor/adafactor.h"
#include "ops/adafactor/adafactor_loops.h"

SN_ONE_KERNEL(sn_adafactor_avx2, "avx2", SN_CPU_AVX2, sn_adafactor_scratch, adafactor_run);
