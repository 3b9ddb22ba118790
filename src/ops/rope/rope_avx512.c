#include "base/cpu.h"
#include "ops/rope/rope_simd.h"

const sn_kernel sn_rope_avx512[] = {{.name = "avx512", .device = SN_DEVICE_CPU, .needs = SN_CPU_AVX512, .takes = takes, .run = run}, {0}};
