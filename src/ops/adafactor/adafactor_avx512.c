#include "ops/adafactor/adafactor.h"
#include "ops/adafactor/adafactor_loops.h"

SN_ONE_KERNEL(sn_adafactor_avx512, "avx512", SN_CPU_AVX512, sn_adafactor_scratch, adafactor_run);
