#include "base/cpu.h"
#include "ops/ring_attention/ring_attention.h"
#include "ops/ring_attention/ring_attention_core.h"

static void run(const sn_call *c) { sn_ring_attention_run(c, &sn_attention_isa_avx512); }

const sn_kernel sn_ring_attention_avx512[] = {
    {.name = "avx512",
     .device = SN_DEVICE_CPU,
     .needs = SN_CPU_AVX512,
     .takes = sn_attention_takes,
     .scratch = sn_attention_scratch,
     .run = run},
    {0},
};
