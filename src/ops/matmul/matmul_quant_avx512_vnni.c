#include "base/cpu.h"
#include "ops/matmul/matmul_quant.h"
#include "ops/matmul/matmul_quant_simd.h"

static const sn_quant_isa isa = {LANES, 8, &sn_convert_avx512, arrange, pack, multiply, multiply_stored};

static size_t scratch(const sn_call *c, int n_threads) { return sn_quant_scratch(&isa, c, n_threads); }
static void run(const sn_call *c) { sn_quant_run(&isa, c); }

const sn_kernel sn_matmul_quant_avx512_vnni[] = {
    {"avx512_vnni q8", SN_DEVICE_CPU, SN_CPU_AVX512 | SN_CPU_AVX512_VNNI, sn_quant_takes, scratch, run}, {0}};
