/* Rates of the processor: independent chains of multiply-adds in registers, and reading memory that no cache holds. */
#include "engine/probe.h"

#include <immintrin.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/team.h"
#include "engine/progress.h"
#include "io/hub_store.h"

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

static int threads_of(int threads) { return threads > 0 ? threads : sn_cpu_count(); }

sn_status sn_probe_measure(int threads, sn_probe *out) {
    sn_team *team;
    *out = (sn_probe){.threads = threads_of(threads)};
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
    return memory ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d bytes to read", MEMORY);
}

/* ---- probe.json ---- */

static sn_status cache_path(char **out) {
    char *models;
    SN_TRY(sn_store_models(&models));
    char *slash = strrchr(models, '/'); /* the store is the folder around models/ */
    if (slash) *slash = 0;
    *out = sn_path_join(models, "probe.json");
    sn_free(models);
    return *out ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
}

sn_status sn_probe_cached(int threads, sn_probe *out, bool *found) {
    char *path, *text = NULL;
    size_t size = 0;
    const char *features = NULL;
    sn_probe p = {0};
    *found = false;
    SN_TRY(cache_path(&path));
    sn_status s = sn_path_exists(path) ? sn_file_read_all(path, 1 << 16, &text, &size) : SN_OK;
    sn_free(path);
    SN_TRY(s);
    json_t *j = text ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL; /* a damaged cache is measured again */
    if (j &&
        !json_unpack(j, "{s:s, s:i, s:F, s:F, s:F, s:F}", "features", &features, "threads", &p.threads, "f32_flops", &p.f32_flops,
                     "bf16_flops", &p.bf16_flops, "int8_ops", &p.int8_ops, "read_bytes_per_s", &p.read_bytes) &&
        !strcmp(features, sn_cpu_text()) && p.threads == threads_of(threads)) {
        snprintf(p.features, sizeof p.features, "%s", features);
        *out = p;
        *found = true;
    }
    json_decref(j);
    sn_free(text);
    return SN_OK;
}

static sn_status write_cache(const sn_probe *p) {
    char *path;
    sn_str text = {0};
    SN_TRY(cache_path(&path));
    sn_str_printf(&text,
                  "{\"features\": \"%s\", \"threads\": %d, \"f32_flops\": %.6e, \"bf16_flops\": %.6e, \"int8_ops\": %.6e, "
                  "\"read_bytes_per_s\": %.6e}\n",
                  p->features, p->threads, p->f32_flops, p->bf16_flops, p->int8_ops, p->read_bytes);
    sn_status s = text.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a text") : SN_OK;
    char *slash = strrchr(path, '/');
    if (s == SN_OK) {
        *slash = 0;
        s = sn_make_dirs(path);
        *slash = '/';
    }
    if (s == SN_OK) s = sn_file_replace(path, text.data, text.size);
    sn_str_free(&text);
    sn_free(path);
    return s;
}

sn_status sn_probe_get(int threads, bool again, sn_probe *out, bool *cached) {
    *cached = false;
    if (!again) SN_TRY(sn_probe_cached(threads, out, cached));
    if (*cached) return SN_OK;
    SN_TRY(sn_probe_measure(threads, out));
    return write_cache(out);
}
