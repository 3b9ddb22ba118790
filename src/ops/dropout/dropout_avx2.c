#include "ops/dropout/dropout.h"
#include "ops/dropout/dropout_loops.h"

SN_ONE_KERNEL(sn_dropout_avx2, "avx2", SN_CPU_AVX2, NULL, dropout_run);
