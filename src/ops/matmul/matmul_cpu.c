/* The float kernels: sn_gemm with each processor family's tiles. One file without processor flags, because `takes` and
 * `scratch` are also asked when planning for another machine. */
#include "ops/gemm/gemm.h"
#include "ops/matmul/matmul.h"

#include "base/cpu.h"

static bool takes(const sn_call *c) {
    return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->out[0].dtype) && c->in[1].dtype != SN_Q8_1 &&
           c->in[1].dtype != SN_Q8_K;
}

static sn_gemm gemm_of(const sn_call *c) {
    const sn_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    sn_gemm g = {.m = y->shape.d[0], .n = y->shape.d[1], .a = a->data, .b = b->data, .c = y->data};
    g.trans_a = c->attrs.i[SN_MATMUL_TRANS_A] != 0;
    g.trans_b = c->attrs.i[SN_MATMUL_TRANS_B] != 0;
    g.k = a->shape.d[!g.trans_a];
    g.lda = sn_cols(a);
    g.ldb = sn_cols(b);
    g.ldc = g.n;
    g.a_form = a->dtype;
    g.b_form = b->dtype;
    g.c_form = y->dtype;
    if (sn_has(c, 2)) {
        g.bias = c->in[2].data;
        g.bias_form = c->in[2].dtype;
    }
    return g;
}

#define SN_MATMUL_KERNEL(isa, text, bits)                          \
    static size_t scratch_##isa(const sn_call *c, int n_threads) { \
        sn_gemm g = gemm_of(c);                                    \
        return sn_gemm_scratch(&sn_gemm_##isa, &g, n_threads);     \
    }                                                              \
    static void run_##isa(const sn_call *c) {                      \
        sn_gemm g = gemm_of(c);                                    \
        sn_gemm_run(&sn_gemm_##isa, &g, c->scratch, c->team);      \
    }                                                              \
    const sn_kernel sn_matmul_##isa[] = {                          \
        {.name = text, .device = SN_DEVICE_CPU, .needs = bits, .takes = takes, .scratch = scratch_##isa, .run = run_##isa}, {0}};

SN_MATMUL_KERNEL(cpu, "reference", SN_CPU_REFERENCE)
SN_MATMUL_KERNEL(avx2, "avx2", SN_CPU_AVX2)
SN_MATMUL_KERNEL(avx512, "avx512", SN_CPU_AVX512)
SN_MATMUL_KERNEL(avx512_bf16, "avx512 bf16", SN_CPU_AVX512_BF16)
