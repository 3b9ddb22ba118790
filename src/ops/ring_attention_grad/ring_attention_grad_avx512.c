#include "base/cpu.h"
#include "ops/ring_attention/ring_attention_core.h"
#include "ops/ring_attention_grad/ring_attention_grad.h"

static void run(const sn_call *c) { sn_ring_attention_grad_run(c, &sn_attention_isa_avx512); }

const sn_kernel sn_ring_attention_grad_avx512[] = {
    {.name = "avx512",
     .device = SN_DEVICE_CPU,
     .needs = SN_CPU_AVX512,
     .takes = sn_attention_grad_takes,
     .scratch = sn_attention_grad_scratch,
     .run = run},
    {0},
};
