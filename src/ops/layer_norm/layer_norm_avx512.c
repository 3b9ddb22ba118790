#include "ops/layer_norm/layer_norm.h"
#include "ops/layer_norm/layer_norm_loops.h"

SN_ONE_KERNEL(sn_layer_norm_avx512, "avx512", SN_CPU_AVX512, NULL, layer_norm_run);
SN_ONE_KERNEL(sn_layer_norm_grad_avx512, "avx512", SN_CPU_AVX512, layer_norm_grad_scratch, layer_norm_grad_run);
