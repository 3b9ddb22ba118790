/* GFLOP/s of attention and its gradient, and of decoding over a paged cache.
 *
 *   attention_bench [threads] [isa] [heads] [kv heads] [head dim] [form]
 *
 * Counted are the products of the pairs (query, key) that are seen: 4 D a pair forward, 10 D backward (the kernels do 14 D).
 * The best of many calls counts, by processor time with one thread and by wall time with more: the machine may be shared. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "ops/attention/attention.h"
#include "ops/attention_grad/attention_grad.h"
#include "ops/paged_attention/paged_attention.h"
#include "tensor/convert.h"

typedef struct bench {
    sn_team *team;
    int threads;
    const char *isa;
    int64_t heads, kv_heads, d;
    sn_dtype form;
} bench;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t bytes) { /* in huge pages where the system has them, as an arena would be */
    void *p = aligned_alloc(2u << 20, sn_round_up(bytes + 64, 2u << 20));
    if (!p) exit(1);
    madvise(p, sn_round_up(bytes + 64, 2u << 20), MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static sn_tensor tensor(sn_dtype form, sn_shape shape) {
    sn_tensor t = {.dtype = form, .shape = shape};
    t.data = memory(sn_tensor_bytes(&t));
    for (int64_t i = 0, n = sn_elements(&t); i < n && sn_dtype_is_float(form); i++) {
        float x = 2 * sn_uniform((uint32_t)i * 2654435761u) - 1;
        if (form == SN_F32) ((float *)t.data)[i] = x;
        else ((uint16_t *)t.data)[i] = form == SN_BF16 ? sn_f32_to_bf16(x) : sn_f32_to_f16(x);
    }
    return t;
}

static const sn_kernel *kernel(const sn_kernel *const tables[3], const char *isa) {
    for (int i = 0; i < 3; i++)
        if ((sn_cpu_features() & tables[i]->needs) == tables[i]->needs && (!isa || !strcmp(tables[i]->name, isa))) return tables[i];
    fprintf(stderr, "no kernel %s here\n", isa);
    exit(2);
}

static double best_seconds(const sn_kernel *k, sn_call *c, const bench *b) {
    c->team = b->team;
    c->scratch = memory(k->scratch(c, b->threads));
    double best = INFINITY;
    clockid_t clock = b->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    for (double end = now(CLOCK_MONOTONIC) + 0.7; now(CLOCK_MONOTONIC) < end || best == INFINITY;) {
        double start = now(clock);
        k->run(c);
        double took = now(clock) - start;
        best = took < best ? took : best;
    }
    free(c->scratch);
    return best;
}

static void training(const bench *b, int64_t n, int64_t sequences, int64_t window) {
    static const sn_kernel *const forward[] = {sn_attention_avx512, sn_attention_avx2, sn_attention_cpu};
    static const sn_kernel *const backward[] = {sn_attention_grad_avx512, sn_attention_grad_avx2, sn_attention_grad_cpu};
    int64_t tokens = n * sequences, q = b->heads * b->d, kv = b->kv_heads * b->d;
    sn_call c = {.n_in = 4}, g = {.n_in = 7};
    for (int i = 0; i < 3; i++) c.in[i] = tensor(b->form, sn_shape_of(tokens, i ? kv : q));
    c.in[3] = tensor(SN_I32, sn_shape_of(tokens));
    for (int64_t t = 0; t < tokens; t++) ((int32_t *)c.in[3].data)[t] = (int32_t)(t / n * n);
    c.out[0] = tensor(b->form, c.in[0].shape);
    c.out[1] = tensor(SN_F32, sn_shape_of(tokens, b->heads));
    c.attrs.i[SN_ATTENTION_HEAD_DIM] = b->d;
    c.attrs.i[SN_ATTENTION_WINDOW] = window;
    c.attrs.f[SN_ATTENTION_SCALE] = 1 / sqrt((double)b->d);
    double w = window && window < n ? (double)window : (double)n;
    double pairs = (w * (w + 1) / 2 + ((double)n - w) * w) * (double)sequences * (double)q;
    double fwd = best_seconds(kernel(forward, b->isa), &c, b);
    g.in[0] = tensor(b->form, c.in[0].shape);
    for (int i = 0; i < 3; i++) g.in[1 + i] = c.in[i], g.out[i] = tensor(b->form, c.in[i].shape);
    g.in[4] = c.out[0], g.in[5] = c.out[1], g.in[6] = c.in[3], g.attrs = c.attrs;
    double bwd = best_seconds(kernel(backward, b->isa), &g, b);
    printf("T=%-5lld x %lld window %-4lld forward %8.3f ms %7.1f GFLOP/s   backward %8.3f ms %7.1f GFLOP/s\n", (long long)n,
           (long long)sequences, (long long)window, 1e3 * fwd, 4e-9 * pairs / fwd, 1e3 * bwd, 10e-9 * pairs / bwd);
    for (int i = 0; i < 4; i++) free(c.in[i].data);
    for (int i = 0; i < 3; i++) free(g.out[i].data);
    free(c.out[0].data), free(c.out[1].data), free(g.in[0].data);
}

static void decoding(const bench *b, int64_t context, int64_t sequences, sn_dtype cache_form) {
    static const sn_kernel *const tables[] = {sn_paged_attention_avx512, sn_paged_attention_avx2, sn_paged_attention_cpu};
    enum { BLOCK = 64 };
    int64_t blocks = (context + BLOCK - 1) / BLOCK;
    sn_call c = {.n_in = 5};
    c.in[0] = tensor(SN_F32, sn_shape_of(sequences, b->heads * b->d));
    c.in[1] = tensor(cache_form, sn_shape_of(blocks * sequences, 2, b->kv_heads, BLOCK, b->d));
    c.in[2] = tensor(SN_I32, sn_shape_of(sequences, blocks));
    c.in[3] = tensor(SN_I32, sn_shape_of(sequences));
    c.in[4] = tensor(SN_I32, sn_shape_of(sequences));
    for (int64_t i = 0; i < sequences * blocks; i++) ((int32_t *)c.in[2].data)[i] = (int32_t)i;
    for (int64_t i = 0; i < sequences; i++) ((int32_t *)c.in[3].data)[i] = (int32_t)i, ((int32_t *)c.in[4].data)[i] = (int32_t)context - 1;
    c.out[0] = tensor(SN_F32, c.in[0].shape);
    c.attrs.i[SN_PAGED_ATTENTION_HEAD_DIM] = b->d;
    c.attrs.f[SN_PAGED_ATTENTION_SCALE] = 1 / sqrt((double)b->d);
    double seconds = best_seconds(kernel(tables, b->isa), &c, b);
    printf("decode %lld sequences of %lld, cache %s (%.0f MB): %8.3f ms, %.1f GB/s of cache\n", (long long)sequences, (long long)context,
           sn_dtype_name(cache_form), 1e-6 * (double)sn_tensor_bytes(&c.in[1]), 1e3 * seconds,
           1e-9 * (double)sn_tensor_bytes(&c.in[1]) / seconds);
    for (int i = 0; i < 5; i++) free(c.in[i].data);
    free(c.out[0].data);
}

int main(int argc, char **argv) {
    bench b = {.threads = argc > 1 ? atoi(argv[1]) : sn_cpu_count(), .isa = argc > 2 && strcmp(argv[2], "-") ? argv[2] : NULL};
    b.heads = argc > 3 ? atoi(argv[3]) : 9;
    b.kv_heads = argc > 4 ? atoi(argv[4]) : 3;
    b.d = argc > 5 ? atoi(argv[5]) : 64;
    if (b.threads < 1 || b.heads < 1 || b.kv_heads < 1 || b.heads % b.kv_heads || b.d < 1 ||
        (argc > 6 && (!sn_dtype_by_name(argv[6], &b.form) || !sn_dtype_is_float(b.form)))) {
        fprintf(stderr, "usage: attention_bench [threads] [isa or -] [heads] [kv heads] [head dim] [f32 | bf16 | f16]\n");
        return 2;
    }
    if (sn_team_open(b.threads, NULL, &b.team) != SN_OK) return 1;
    printf("%d threads, %s of %s, H=%lld G=%lld D=%lld %s\n", b.threads, b.isa ? b.isa : "best", sn_cpu_text(), (long long)b.heads,
           (long long)b.kv_heads, (long long)b.d, sn_dtype_name(b.form));
    training(&b, 256, 4, 0);
    training(&b, 1024, 1, 0);
    training(&b, 4096, 1, 0);
    training(&b, 4096, 1, 512);
    decoding(&b, 4096, 1, SN_F32);
    decoding(&b, 4096, 16, SN_F32);
    decoding(&b, 4096, 16, SN_F16);
    decoding(&b, 32768, 1, SN_F16);
    sn_team_close(b.team);
    return 0;
}
