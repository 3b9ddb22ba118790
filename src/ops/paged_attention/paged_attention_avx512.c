#include "base/cpu.h"
#include "ops/attention/attention_core.h"
#include "ops/paged_attention/paged_attention.h"

static void run(const sn_call *c) { sn_paged_attention_run(c, &sn_attention_isa_avx512); }

const sn_kernel sn_paged_attention_avx512[] = {
    {.name = "avx512",
     .device = SN_DEVICE_CPU,
     .needs = SN_CPU_AVX512,
     .takes = sn_paged_attention_takes,
     .scratch = sn_paged_attention_scratch,
     .run = run},
    {0},
};
