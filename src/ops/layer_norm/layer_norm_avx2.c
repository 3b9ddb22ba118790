#include "ops/layer_norm/layer_norm.h"
#include "ops/layer_norm/layer_norm_loops.h"

SN_ONE_KERNEL(sn_layer_norm_avx2, "avx2", SN_CPU_AVX2, NULL, layer_norm_run);
SN_ONE_KERNEL(sn_layer_norm_grad_avx2, "avx2", SN_CPU_AVX2, layer_norm_grad_scratch, layer_norm_grad_run);
