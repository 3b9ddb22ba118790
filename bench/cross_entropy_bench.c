/* Time of linear_cross_entropy with both gradients.
 *
 *   cross_entropy_bench [threads] [tokens] [width] [vocabulary] [seconds a row]
 *
 * One line a kernel and form: milliseconds and GFLOP/s of its three (a 16-bit dw beyond one chunk: four) products, all labels present. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "tensor/convert.h"

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *pages(size_t bytes) {
    void *p = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static void fill(sn_tensor *t) {
    int64_t n = sn_elements(t);
    t->data = pages(sn_tensor_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        float f = (2 * sn_uniform((uint32_t)i * 2654435761u) - 1) * 0.1f;
        if (t->dtype == SN_F32) ((float *)t->data)[i] = f;
        if (t->dtype == SN_BF16) ((uint16_t *)t->data)[i] = sn_f32_to_bf16(f);
    }
}

static void bench(const sn_kernel *k, sn_dtype form, sn_dtype dw_form, int64_t tokens, int64_t width, int64_t vocabulary, sn_team *team,
                  double seconds) {
    if ((sn_cpu_features() & k->needs) != k->needs) return;
    static float scale = 1e-3f;
    sn_call c = {.n_in = 4, .n_out = 3, .attrs.i = {1, 1, dw_form, 0}, .team = team};
    c.in[0] = (sn_tensor){.dtype = form, .shape = sn_shape_of(tokens, width)};
    c.in[1] = (sn_tensor){.dtype = form, .shape = sn_shape_of(vocabulary, width)};
    c.in[2] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(tokens)};
    c.in[3] = (sn_tensor){.data = &scale, .dtype = SN_F32, .shape = sn_shape_of(1)};
    c.out[0] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(tokens)};
    c.out[1] = (sn_tensor){.dtype = form, .shape = c.in[0].shape};
    c.out[2] = (sn_tensor){.dtype = dw_form, .shape = c.in[1].shape};
    fill(&c.in[0]);
    fill(&c.in[1]);
    c.in[2].data = pages((size_t)tokens * 4);
    for (int64_t i = 0; i < tokens; i++) ((int32_t *)c.in[2].data)[i] = (int32_t)(i * 7919 % vocabulary);
    for (int i = 0; i < 3; i++) c.out[i].data = pages(sn_tensor_bytes(&c.out[i]));
    size_t scratch = k->scratch(&c, sn_team_size(team));
    c.scratch = pages(scratch);
    double best = 1e9, best_cpu = 1e9, until = now(CLOCK_MONOTONIC) + seconds;
    for (int i = 0; i < 2 || now(CLOCK_MONOTONIC) < until; i++) {
        double t = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
        k->run(&c);
        t = now(CLOCK_MONOTONIC) - t;
        cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
        if (t < best) best = t;
        if (cpu < best_cpu) best_cpu = cpu;
    }
    double flops = 6.0 * (double)tokens * (double)width * (double)vocabulary;
    printf("%-12s %-4s dw %-4s %8.1f ms %8.1f GFLOP/s, by the caller's processor time %8.1f  scratch %.1f MiB\n", k->name,
           sn_dtype_name(form), sn_dtype_name(dw_form), best * 1e3, flops / best * 1e-9, flops / best_cpu * 1e-9,
           (double)scratch / (1 << 20));
    fflush(stdout);
    for (int i = 0; i < 3; i++) munmap(c.in[i].data, sn_tensor_bytes(&c.in[i]) + 4096);
    for (int i = 0; i < 3; i++) munmap(c.out[i].data, sn_tensor_bytes(&c.out[i]) + 4096);
    munmap(c.scratch, scratch + 4096);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : sn_cpu_count();
    int64_t tokens = argc > 2 ? atol(argv[2]) : 1024, width = argc > 3 ? atol(argv[3]) : 576, vocabulary = argc > 4 ? atol(argv[4]) : 49152;
    double seconds = argc > 5 ? atof(argv[5]) : 2;
    sn_team *team;
    if (sn_team_open(threads, NULL, &team) != SN_OK) return 1;
    printf("# %s, %d threads, h [%ld,%ld], w [%ld,%ld]\n", sn_cpu_text(), threads, (long)tokens, (long)width, (long)vocabulary,
           (long)width);
    const sn_kernel *kernels[] = {sn_linear_cross_entropy_avx512_bf16, sn_linear_cross_entropy_avx512, sn_linear_cross_entropy_avx2};
    for (int i = 0; i < 3; i++) {
        bench(kernels[i], SN_F32, SN_F32, tokens, width, vocabulary, team, seconds);
        bench(kernels[i], SN_BF16, SN_F32, tokens, width, vocabulary, team, seconds);
        bench(kernels[i], SN_BF16, SN_BF16, tokens, width, vocabulary, team, seconds);
    }
    sn_team_close(team);
    return 0;
}
