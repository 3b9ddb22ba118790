/* Rates of the processor: independent chains of multiply-adds in registers, and reading memory that no cache holds. */
#include "engine/probe.h"

#include <immintrin.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/system.h"
#include "base/team.h"
#include "engine/profile.h"

enum { CHAINS = 12, ROUNDS = 200000, REPEATS = 5, MEMORY = 256 << 20 };

/* The asm statement uses every chain's end, so that no work is left out. */
#define CHAIN(vector, start, step)                                                                               \
    vector a[CHAINS];                                                                                            \
    _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) a[k] = start;                                      \
    for (long i = 0; i < ROUNDS; i++) { _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) a[k] = step; } \
    _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) __asm__ volatile("" ::"x"(a[k]))

static void f32_sse(void) {
    const __m128 m = _mm_set1_ps(0.999f), c = _mm_set1_ps(0.001f);
    CHAIN(__m128, _mm_set1_ps((float)k), _mm_add_ps(_mm_mul_ps(a[k], m), c));
}

__attribute__((target("avx2,fma"))) static void f32_avx2(void) {
    const __m256 m = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(0.001f);
    CHAIN(__m256, _mm256_set1_ps((float)k), _mm256_fmadd_ps(a[k], m, c));
}

__attribute__((target("avx2"))) static void int8_avx2(void) {
    const __m256i u = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    CHAIN(__m256i, _mm256_set1_epi32(k), _mm256_add_epi32(a[k], _mm256_madd_epi16(_mm256_maddubs_epi16(u, a[k]), ones)));
}

__attribute__((target("avx512f"))) static void f32_avx512(void) {
    const __m512 m = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(0.001f);
    CHAIN(__m512, _mm512_set1_ps((float)k), _mm512_fmadd_ps(a[k], m, c));
}

__attribute__((target("avx512f,avx512bf16"))) static void bf16_avx512(void) {
    const __m512bh m = (__m512bh)_mm512_set1_epi32(0x3f003f00);
    CHAIN(__m512, _mm512_set1_ps((float)k), _mm512_dpbf16_ps(a[k], m, m));
}

__attribute__((target("avx512f,avx512vnni"))) static void int8_avx512(void) {
    const __m512i u = _mm512_set1_epi8(3);
    CHAIN(__m512i, _mm512_set1_epi32(k), _mm512_dpbusd_epi32(a[k], u, u));
}

/* operations: of one step of one chain, a multiply and an add each counting one. */
typedef struct unit {
    uint32_t needs;
    void (*run)(void);
    double operations;
} unit;

/* The best of each list that the processor has counts. */
static const unit f32_units[] = {{SN_CPU_AVX512, f32_avx512, 32}, {SN_CPU_AVX2, f32_avx2, 16}, {SN_CPU_REFERENCE, f32_sse, 8}};
static const unit bf16_units[] = {{SN_CPU_AVX512 | SN_CPU_AVX512_BF16, bf16_avx512, 64}};
static const unit int8_units[] = {{SN_CPU_AVX512 | SN_CPU_AVX512_VNNI, int8_avx512, 128}, {SN_CPU_AVX2, int8_avx2, 64}};

typedef struct work {
    void (*run)(void);
    const char *memory;
    size_t share;
    volatile int sink;
} work;

static void run_unit(void *context, int64_t task, int member) {
    work *w = context;
    (void)task, (void)member;
    w->run();
}

static void run_read(void *context, int64_t task, int member) {
    work *w = context;
    const __m128i *at = (const __m128i *)(const void *)(w->memory + (size_t)task * w->share);
    __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
    (void)member;
    for (size_t i = 0; i + 4 <= w->share / sizeof *at; i += 4) {
        a = _mm_xor_si128(a, _mm_loadu_si128(at + i));
        b = _mm_xor_si128(b, _mm_loadu_si128(at + i + 1));
        c = _mm_xor_si128(c, _mm_loadu_si128(at + i + 2));
        d = _mm_xor_si128(d, _mm_loadu_si128(at + i + 3));
    }
    w->sink = _mm_cvtsi128_si32(_mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d)));
}

/* The shortest of a few runs: everything else on the machine only makes it longer. */
static double fastest(sn_team *team, sn_task_fn fn, work *w) {
    double best = 1e30;
    for (int r = 0; r < REPEATS; r++) {
        double start = sn_now();
        sn_team_run(team, sn_team_size(team), fn, w);
        double seconds = sn_now() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

static double rate(sn_team *team, const unit *units, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((sn_cpu_features() & units[i].needs) != units[i].needs) continue;
        work w = {.run = units[i].run};
        return units[i].operations * CHAINS * ROUNDS * sn_team_size(team) / fastest(team, run_unit, &w);
    }
    return 0;
}

static sn_status measure(int threads, sn_probe *out) {
    sn_team *team;
    *out = (sn_probe){.threads = sn_probe_threads(threads)};
    snprintf(out->features, sizeof out->features, "%s", sn_cpu_text());
    SN_TRY(sn_team_open(out->threads, NULL, &team));
    out->f32_flops = rate(team, f32_units, sizeof f32_units / sizeof *f32_units);
    out->bf16_flops = rate(team, bf16_units, sizeof bf16_units / sizeof *bf16_units);
    out->int8_ops = rate(team, int8_units, sizeof int8_units / sizeof *int8_units);
    char *memory = sn_alloc(MEMORY);
    if (memory) {
        work w = {.memory = memory, .share = MEMORY / (size_t)out->threads};
        memset(memory, 1, MEMORY);
        out->read_bytes = (double)(w.share * (size_t)out->threads) / fastest(team, run_read, &w);
    }
    sn_free(memory);
    sn_team_close(team);
    if (!memory) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d bytes to read", MEMORY);
    const sn_rates rates = {.f32_flops = out->f32_flops, .bf16_flops = out->bf16_flops, .bytes_per_s = out->read_bytes};
    return sn_profile_measure(out->threads, &rates, &out->profile);
}

static sn_status measure_disk(sn_probe *p, const char *folder) {
    sn_probe_disk d = {0};
    int most = sizeof p->disks / sizeof *p->disks, old = p->n_disks < most ? p->n_disks++ : most - 1;
    SN_TRY(sn_make_dirs(folder));
    if (!sn_probe_folder(folder, d.folder)) return sn_fail(SN_ERR_FILE, "%s has no absolute name of fewer than 256 bytes", folder);
    SN_TRY(sn_profile_disk(folder, &d.read_bytes, &d.write_bytes));
    for (int i = 0; i < old; i++)
        if (!strcmp(p->disks[i].folder, d.folder)) {
            p->disks[i] = d;
            p->n_disks = old;
            return SN_OK;
        }
    memmove(&p->disks[1], &p->disks[0], (size_t)old * sizeof d);
    p->disks[0] = d;
    return SN_OK;
}

sn_status sn_probe_get(int threads, bool again, const char *folder, sn_probe *out, bool *cached) {
    bool disk = folder && *folder;
    SN_TRY(sn_probe_cached(threads, out, cached));
    if (again || !*cached) {
        const sn_probe old = *out;
        bool had = *cached;
        SN_TRY(measure(threads, out));
        if (had) memcpy(out->disks, old.disks, sizeof old.disks);
        if (had) out->n_disks = old.n_disks;
    }
    if (disk && (again || !sn_probe_find_disk(out, folder))) SN_TRY(measure_disk(out, folder));
    else if (*cached && !again) return SN_OK;
    *cached = false;
    return sn_probe_keep(out);
}
