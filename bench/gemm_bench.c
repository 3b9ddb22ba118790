/* GFLOP/s of the float GEMM at the shapes of training and generation.
 *
 *   gemm_bench [threads] [native | avx512_bf16 | avx512 | avx2 | cpu] [seconds a shape] [only shapes whose name starts so]
 *
 * One line a shape: name, m, n, k, trans_a, trans_b, form of a and b, form of c, GFLOP/s, GB/s of A, B and C read or written once.
 * The best of many calls by wall time counts: the machine may be shared. With one thread also the best by processor time. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "base/team.h"
#include "ops/gemm/gemm.h"
#include "tensor/convert.h"

static const struct shape {
    const char *name;
    int64_t m, n, k;
    int trans_a, trans_b, accumulate;
} shapes[] = {
    {"qo_proj", 1024, 576, 576, 0, 1, 0},     {"kv_proj", 1024, 192, 576, 0, 1, 0},      {"gate_up", 1024, 1536, 576, 0, 1, 0},
    {"down", 1024, 576, 1536, 0, 1, 0},       {"gate_dx", 1024, 576, 1536, 0, 0, 0},     {"down_dx", 1024, 1536, 576, 0, 0, 0},
    {"gate_dw", 1536, 576, 1024, 1, 0, 0},    {"down_dw", 576, 1536, 1024, 1, 0, 0},     {"q_dw", 576, 576, 1024, 1, 0, 0},
    {"head", 256, 49152, 576, 0, 1, 0},       {"head_dx", 256, 576, 49152, 0, 0, 0},     {"head_dw", 49152, 576, 256, 1, 0, 1},
    {"cube_1024", 1024, 1024, 1024, 0, 1, 0}, {"8b_qkvo", 512, 4096, 4096, 0, 1, 0},     {"8b_down", 512, 4096, 14336, 0, 1, 0},
    {"lora_a", 1024, 8, 576, 0, 1, 0},        {"lora_b", 1024, 576, 8, 0, 1, 0},         {"lora_da", 8, 576, 1024, 1, 0, 0},
    {"decode_1", 1, 49152, 576, 0, 1, 0},     {"decode_1_ffn", 1, 14336, 4096, 0, 1, 0}, {"decode_2", 2, 49152, 576, 0, 1, 0},
    {"decode_8", 8, 49152, 576, 0, 1, 0},     {"decode_16", 16, 49152, 576, 0, 1, 0},
};

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *pages(size_t bytes) {
    bytes = (bytes + (2u << 20)) / (2u << 20) * (2u << 20);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static void *filled(sn_dtype form, int64_t n, size_t *bytes) {
    *bytes = (size_t)n * (size_t)sn_dtypes[form].bytes;
    char *p = pages(*bytes);
    for (int64_t i = 0; i < n; i++) {
        float f = 2 * sn_uniform((uint32_t)i * 2654435761u) - 1;
        if (form == SN_F32) ((float *)p)[i] = f;
        if (form == SN_BF16) ((uint16_t *)p)[i] = sn_f32_to_bf16(f);
    }
    return p;
}

static void bench(const sn_gemm_isa *isa, const struct shape *s, sn_dtype form, sn_dtype c_form, int threads, sn_team *team,
                  double seconds) {
    size_t a_bytes, b_bytes, c_bytes;
    sn_gemm g = {.m = s->m,
                 .n = s->n,
                 .k = s->k,
                 .a_form = form,
                 .b_form = form,
                 .c_form = c_form,
                 .trans_a = s->trans_a,
                 .trans_b = s->trans_b,
                 .accumulate = s->accumulate};
    g.lda = s->trans_a ? s->m : s->k;
    g.ldb = s->trans_b ? s->k : s->n;
    g.ldc = s->n;
    void *a = filled(form, s->m * s->k, &a_bytes), *b = filled(form, s->k * s->n, &b_bytes);
    g.a = a;
    g.b = b;
    g.c = filled(c_form, s->m * s->n, &c_bytes);
    size_t scratch_bytes = sn_gemm_scratch(isa, &g, threads);
    void *scratch = pages(scratch_bytes);
    double wall = 1e9, cpu = 1e9, until = now(CLOCK_MONOTONIC) + seconds;
    for (int i = 0; i < 3 || now(CLOCK_MONOTONIC) < until; i++) {
        double w = now(CLOCK_MONOTONIC), c = now(CLOCK_THREAD_CPUTIME_ID);
        sn_gemm_run(isa, &g, scratch, team);
        w = now(CLOCK_MONOTONIC) - w;
        c = now(CLOCK_THREAD_CPUTIME_ID) - c;
        if (w < wall) wall = w;
        if (c < cpu) cpu = c;
    }
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k, bytes = (double)(a_bytes + b_bytes + c_bytes);
    printf("%-13s %6ld %6ld %6ld %d %d %-4s %-4s %8.1f GFLOP/s %6.1f GB/s", s->name, (long)s->m, (long)s->n, (long)s->k, s->trans_a,
           s->trans_b, sn_dtype_name(form), sn_dtype_name(c_form), flops / wall * 1e-9, bytes / wall * 1e-9);
    if (threads == 1) printf("  cpu %8.1f GFLOP/s", flops / cpu * 1e-9);
    printf("  scratch %.2f MiB\n", (double)scratch_bytes / (1 << 20));
    fflush(stdout);
    munmap(a, a_bytes);
    munmap(b, b_bytes);
    munmap(g.c, c_bytes);
    munmap(scratch, scratch_bytes);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : sn_cpu_count();
    uint32_t have = sn_cpu_features();
    const char *want = argc > 2 && strcmp(argv[2], "native") ? argv[2]
                       : have & SN_CPU_AVX512_BF16           ? "avx512_bf16"
                       : have & SN_CPU_AVX512                ? "avx512"
                       : have & SN_CPU_AVX2                  ? "avx2"
                                                             : "cpu";
    double seconds = argc > 3 ? atof(argv[3]) : 0.5;
    const char *only = argc > 4 ? argv[4] : "";
    const sn_gemm_isa *isa = !strcmp(want, "avx512_bf16") ? &sn_gemm_avx512_bf16
                             : !strcmp(want, "avx512")    ? &sn_gemm_avx512
                             : !strcmp(want, "avx2")      ? &sn_gemm_avx2
                                                          : &sn_gemm_cpu;
    sn_team *team;
    if (sn_team_open(threads, NULL, &team) != SN_OK) return 1;
    printf("# %s of %s, %d threads\n", want, sn_cpu_text(), threads);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (strncmp(shapes[i].name, only, strlen(only)) != 0) continue;
        bench(isa, &shapes[i], SN_F32, SN_F32, threads, team, seconds);
        bench(isa, &shapes[i], SN_BF16, shapes[i].accumulate ? SN_F32 : SN_BF16, threads, team, seconds);
    }
    sn_team_close(team);
    return 0;
}
