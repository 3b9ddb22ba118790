#include "base/cpu.h"
#include "ops/rope/rope_simd.h"

const sn_kernel sn_rope_avx2[] = {{.name = "avx2", .device = SN_DEVICE_CPU, .needs = SN_CPU_AVX2, .takes = takes, .run = run}, {0}};
