#include "ops/dropout/dropout.h"
#include "ops/dropout/dropout_loops.h"

SN_ONE_KERNEL(sn_dropout_avx512, "avx512", SN_CPU_AVX512, NULL, dropout_run);
