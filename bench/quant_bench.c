/* Speed of integer products with quantised weights at a model's layer shapes: prompts (M tokens at once) and decoding (M = 1).
 *
 *   quant_bench [threads] [isa: avx2 | avx512 | avx512_vnni | best] [seconds a shape] [M of prompts; 0: decoding only]
 *
 * A line a shape: form, m, n, k, Gop/s (2 m n k) and GB/s of stored weights; then the tokens/s that all linear layers of the model
 * alone would allow. Each call takes the next of several copies of the weight, 256 MiB together, so that decoding reads memory
 * and not a cache. The best of many calls counts, by processor time with one thread: the machine may be shared. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cpu.h"
#include "base/team.h"
#include "ops/matmul/matmul_quant.h"
#include "tensor/convert.h"

typedef struct layer {
    int times; /* in the model */
    sn_dtype form;
    int64_t n, k;
} layer;

static const struct model {
    const char *name;
    layer layers[6];
} models[] = {
    {"SmolLM2-135M Q4_1",
     {{60, SN_Q4_1, 576, 576}, {60, SN_Q4_1, 192, 576}, {60, SN_Q4_1, 1536, 576}, {30, SN_Q4_1, 576, 1536}, {1, SN_Q8_0, 49152, 576}}},
    {"Llama-3.2-1B Q4_K",
     {{32, SN_Q4_K, 2048, 2048},
      {32, SN_Q4_K, 512, 2048},
      {32, SN_Q4_K, 8192, 2048},
      {16, SN_Q6_K, 2048, 8192},
      {1, SN_Q6_K, 128256, 2048}}},
    {"Llama-3.2-1B Q8_0", {{32, SN_Q8_0, 2048, 2048}, {32, SN_Q8_0, 512, 2048}, {32, SN_Q8_0, 8192, 2048}, {16, SN_Q8_0, 2048, 8192}}},
    {"Llama-3.2-1B Q4_0", {{32, SN_Q4_0, 2048, 2048}, {32, SN_Q4_0, 512, 2048}, {32, SN_Q4_0, 8192, 2048}, {16, SN_Q4_0, 2048, 8192}}},
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
    return p;
}

enum { WEIGHT_BYTES = 256 << 20 };

static double bench(const sn_kernel *kernel, const layer *l, int64_t m, uint8_t *weights, sn_team *team, double seconds) {
    sn_call c = {.n_in = 2, .n_out = 1, .attrs.i = {0, 1, SN_F32}, .team = team};
    c.in[0] = (sn_tensor){NULL, sn_quant_activation(l->form), sn_shape_of(m, l->k)};
    c.in[1] = (sn_tensor){weights, l->form, sn_shape_of(l->n, l->k)};
    c.out[0] = (sn_tensor){pages((size_t)(m * l->n) * 4), SN_F32, sn_shape_of(m, l->n)};
    const size_t a_bytes = sn_tensor_bytes(&c.in[0]), b_bytes = sn_tensor_bytes(&c.in[1]);
    uint8_t *a = c.in[0].data = pages(a_bytes);
    for (size_t i = 0; i < a_bytes; i++) a[i] = (uint8_t)(i * 37 & 0x3f);
    const size_t scratch_bytes = kernel->scratch(&c, sn_team_size(team));
    c.scratch = pages(scratch_bytes);
    const size_t copies = m > 8 ? 1 : WEIGHT_BYTES / b_bytes;
    const clockid_t clock = sn_team_size(team) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    double best = 1e9, until = now(CLOCK_MONOTONIC) + seconds;
    for (size_t i = 0; i < 3 || now(CLOCK_MONOTONIC) < until;) {
        /* Small weights are timed as one pass over their copies, as a model's layers follow one another. */
        size_t group = copies < 16 ? 1 : 16;
        double t = now(clock);
        for (size_t g = 0; g < group; g++, i++) {
            c.in[1].data = weights + i % (copies ? copies : 1) * b_bytes;
            kernel->run(&c);
        }
        t = (now(clock) - t) / (double)group;
        if (t < best) best = t;
    }
    printf("%-5s m %4lld n %6lld k %5lld  %8.1f Gop/s %7.2f GB/s\n", sn_dtype_name(l->form), (long long)m, (long long)l->n, (long long)l->k,
           2e-9 * (double)(m * l->n * l->k) / best, 1e-9 * (double)b_bytes / best);
    munmap(c.out[0].data, 1);
    return best;
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const char *isa = argc > 2 ? argv[2] : "best";
    const double seconds = argc > 3 ? atof(argv[3]) : 0.2;
    const int64_t ms[2] = {argc > 4 ? atoi(argv[4]) : 512, 1};
    static const sn_kernel *const tables[] = {sn_matmul_quant_avx512_vnni, sn_matmul_quant_avx512, sn_matmul_quant_avx2};
    const sn_kernel *kernel = NULL;
    for (int i = 0; i < 3 && !kernel; i++) {
        const char *space = strchr(tables[i]->name, ' ');
        bool named =
            !strcmp(isa, "best") || ((size_t)(space - tables[i]->name) == strlen(isa) && !strncmp(isa, tables[i]->name, strlen(isa)));
        if (named && (sn_cpu_features() & tables[i]->needs) == tables[i]->needs) kernel = tables[i];
    }
    if (!kernel) {
        fprintf(stderr, "quant_bench: no kernel %s on this processor (%s)\n", isa, sn_cpu_text());
        return 1;
    }
    sn_team *team = NULL;
    if (sn_team_open(threads, NULL, &team) != SN_OK) return 1;
    uint8_t *weights = pages((size_t)WEIGHT_BYTES * 2);
    for (size_t i = 0; i < (size_t)WEIGHT_BYTES * 2; i++) weights[i] = (uint8_t)(i * 2654435761u >> 24 & 0x3f); /* small scales */
    printf("# %s, %d threads, processor: %s\n", kernel->name, threads, sn_cpu_text());
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int j = ms[0] < 1; j < 2; j++) {
            double total = 0;
            for (const layer *l = models[i].layers; l < models[i].layers + 6 && l->times; l++)
                total += (l->n > 40000 && j == 0 ? 0 : l->times) *
                         bench(kernel, l, ms[j], weights, team, seconds); /* a prompt needs one row of logits */
            printf("%s, %s: linear layers alone %.0f tokens/s\n", models[i].name, j ? "decoding" : "prompt", (double)ms[j] / total);
        }
    sn_team_close(team);
    return 0;
}
