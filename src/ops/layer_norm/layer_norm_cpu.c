#include "ops/layer_norm/layer_norm.h"
#include "ops/layer_norm/layer_norm_loops.h"

SN_ONE_KERNEL(sn_layer_norm_cpu, "reference", SN_CPU_REFERENCE, NULL, layer_norm_run);
SN_ONE_KERNEL(sn_layer_norm_grad_cpu, "reference", SN_CPU_REFERENCE, layer_norm_grad_scratch, layer_norm_grad_run);
