#include "base/cpu.h"
#include "ops/kv_write/kv_write_simd.h"

const sn_kernel sn_kv_write_avx512[] = {{.name = "avx512", .device = SN_DEVICE_CPU, .needs = SN_CPU_AVX512, .takes = takes, .run = run},
                                        {0}};
