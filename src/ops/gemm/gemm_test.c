#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "ops/gemm/gemm.h"
#include "tensor/convert.h"

static const struct {
    const char *name;
    const sn_gemm_isa *isa;
    uint32_t needs;
} isas[] = {{"cpu", &sn_gemm_cpu, 0},
            {"avx2", &sn_gemm_avx2, SN_CPU_AVX2},
            {"avx512", &sn_gemm_avx512, SN_CPU_AVX512},
            {"avx512_bf16", &sn_gemm_avx512_bf16, SN_CPU_AVX512_BF16}};
enum { ISAS = sizeof isas / sizeof isas[0] };
static bool runs(int i) { return (sn_cpu_features() & isas[i].needs) == isas[i].needs; }

static sn_team *teams[4];
static int open_teams(void **state) {
    (void)state;
    for (int i = 1; i < 4; i++)
        if (sn_team_open(i, NULL, &teams[i]) != SN_OK) return -1;
    return 0;
}
static int close_teams(void **state) {
    (void)state;
    for (int i = 1; i < 4; i++) sn_team_close(teams[i]);
    return 0;
}

static size_t elem(sn_dtype t) { return (size_t)sn_dtypes[t].bytes; }

/* n values of a form in memory that ends exactly behind them, so that the address sanitizer sees a read beyond. */
static void *make(sn_dtype form, int64_t n, uint32_t seed) {
    float *f = sn_alloc((size_t)n * 4 + 4);
    test_fill(f, (size_t)n, seed, 1);
    if (form == SN_F32) {
        void *exact = malloc((size_t)n * 4 + (n == 0));
        memcpy(exact, f, (size_t)n * 4);
        sn_free(f);
        return exact;
    }
    void *out = malloc((size_t)(n / sn_dtypes[form].block) * elem(form) + (n == 0));
    if (n) assert_ok(sn_from_f32(form, f, n, out));
    sn_free(f);
    return out;
}

static float value(sn_dtype form, const void *p, int64_t i) {
    float f;
    sn_to_f32(form, (const char *)p + (size_t)i * elem(form), 1, &f);
    return f;
}

/* The definition, element by element. */
static void naive(const sn_gemm *g, void *c) {
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            float acc = g->accumulate ? ((float *)c)[i * g->ldc + j] : 0;
            for (int64_t k0 = 0; k0 < g->k; k0 += SN_GEMM_RUN) {
                float run_sum = 0;
                for (int64_t k = k0; k < g->k && k < k0 + SN_GEMM_RUN; k++)
                    run_sum = fmaf(value(g->a_form, g->a, g->trans_a ? k * g->lda + i : i * g->lda + k),
                                   value(g->b_form, g->b, g->trans_b ? j * g->ldb + k : k * g->ldb + j), run_sum);
                acc = k0 == 0 && !g->accumulate ? run_sum : acc + run_sum;
            }
            if (g->bias) acc += value(g->bias_form, g->bias, j);
            char *out = (char *)c + (size_t)(i * g->ldc + j) * elem(g->c_form);
            assert_ok(sn_from_f32(g->c_form, &acc, 1, out));
        }
}

static void run(int isa, const sn_gemm *g, void *c, int threads) {
    size_t bytes = sn_gemm_scratch(isas[isa].isa, g, threads);
    void *scratch = NULL;
    if (posix_memalign(&scratch, 64, bytes + 64)) fail();
    memset(scratch, 0xa5, bytes + 64);
    sn_gemm h = *g;
    h.c = c;
    sn_gemm_run(isas[isa].isa, &h, scratch, teams[threads]);
    for (int i = 0; i < 64; i++) assert_int_equal(((uint8_t *)scratch)[bytes + (size_t)i], 0xa5);
    free(scratch);
}

static bool exact(int isa, const sn_gemm *g) {
    if (isas[isa].needs == SN_CPU_AVX512_BF16 && g->a_form == SN_BF16 && g->b_form == SN_BF16 && !(g->m == 1 && g->trans_b && !g->chain))
        return false;
    return true;
}

/* Fills in operands for g's extents and forms, compares every variant and thread count with the definition. */
static void check(sn_gemm g, int pad, uint32_t seed) {
    int64_t a_rows = g.trans_a ? g.k : g.m, a_cols = g.trans_a ? g.m : g.k, b_rows = g.trans_b ? g.n : g.k, b_cols = g.trans_b ? g.k : g.n;
    g.lda = a_cols + pad;
    g.ldb = b_cols + pad;
    g.ldc = g.n + pad;
    int64_t a_n = a_rows ? (a_rows - 1) * g.lda + a_cols : 0, b_n = b_rows ? (b_rows - 1) * g.ldb + b_cols : 0;
    int64_t c_n = g.m ? (g.m - 1) * g.ldc + g.n : 0;
    void *a = make(g.a_form, a_n, seed), *b = make(g.b_form, b_n, seed + 1), *bias = make(SN_F32, g.n, seed + 2);
    g.a = a;
    g.b = b;
    g.bias_form = SN_F32;
    if (seed % 3 == 0) g.bias = bias;
    bool by_lanes = g.m == 1 && g.trans_b && !g.chain && !g.accumulate;
    void *want = make(g.c_form, c_n, seed + 3), *start = make(g.c_form, c_n, seed + 3), *got = make(g.c_form, c_n, seed + 3);
    size_t bytes = (size_t)c_n * elem(g.c_form);
    if (by_lanes) run(0, &g, want, 1);
    else naive(&g, want);
    for (int i = 0; i < ISAS; i++)
        for (int t = 1; t < 4; t++) {
            if (!runs(i)) continue;
            memcpy(got, start, bytes);
            run(i, &g, got, t);
            if (!exact(i, &g)) {
                double worst = 0;
                for (int64_t e = 0; e < c_n; e++) worst = fmax(worst, fabs((double)value(g.c_form, got, e) - value(g.c_form, want, e)));
                double tolerance = (double)g.k * 0x1p-20 + (g.c_form == SN_F32 ? 0 : 0.02 * sqrt((double)g.k));
                if (!(worst <= tolerance)) fail_msg("%s %ldx%ldx%ld: error %g", isas[i].name, g.m, g.n, g.k, worst);
            } else if (memcmp(got, want, bytes) != 0) {
                fail_msg("%s, %d threads, %ldx%ldx%ld ta %d tb %d forms %s %s %s: other bits", isas[i].name, t, g.m, g.n, g.k, g.trans_a,
                         g.trans_b, sn_dtype_name(g.a_form), sn_dtype_name(g.b_form), sn_dtype_name(g.c_form));
            }
        }
    free(a);
    free(b);
    free(bias);
    free(want);
    free(start);
    free(got);
}

static void all_transpositions_and_odd_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{0, 3, 4},    {3, 0, 4},     {3, 4, 0},    {1, 1, 1},    {1, 37, 19},  {2, 8, 5},     {5, 31, 1},
                                        {7, 17, 13},  {12, 32, 8},   {13, 33, 67}, {29, 8, 97},  {31, 70, 3},  {64, 16, 40},  {37, 131, 53},
                                        {53, 9, 401}, {3, 211, 411}, {1, 65, 64},  {97, 67, 31}, {6, 16, 777}, {100, 200, 16}};
    uint32_t seed = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int t = 0; t < 4; t++)
            check((sn_gemm){.m = shapes[s][0], .n = shapes[s][1], .k = shapes[s][2], .trans_a = t & 1, .trans_b = t & 2}, t == 2 ? 3 : 0,
                  seed++);
}

static void all_forms(void **state) {
    (void)state;
    static const sn_dtype forms[] = {SN_F32, SN_BF16, SN_F16};
    uint32_t seed = 100;
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 3; c++)
                for (int t = 0; t < 4; t++) {
                    check((sn_gemm){.m = 15,
                                    .n = 35,
                                    .k = 41,
                                    .a_form = forms[a],
                                    .b_form = forms[b],
                                    .c_form = forms[c],
                                    .trans_a = t & 1,
                                    .trans_b = t & 2},
                          t, seed++);
                    check((sn_gemm){.m = 1,
                                    .n = 21,
                                    .k = 37,
                                    .a_form = forms[a],
                                    .b_form = forms[b],
                                    .c_form = forms[c],
                                    .trans_a = t & 1,
                                    .trans_b = t & 2},
                          0, seed++);
                }
}

static void accumulates_and_chains(void **state) {
    (void)state;
    for (int t = 0; t < 4; t++) {
        check((sn_gemm){.m = 17, .n = 40, .k = 300, .trans_a = t & 1, .trans_b = t & 2, .accumulate = true}, 1, 300 + (uint32_t)t);
        check((sn_gemm){.m = 1, .n = 40, .k = 300, .trans_a = t & 1, .trans_b = t & 2, .accumulate = true}, 0, 310 + (uint32_t)t);
        check((sn_gemm){.m = 1, .n = 40, .k = 500, .trans_a = t & 1, .trans_b = t & 2, .chain = true}, 0, 320 + (uint32_t)t);
        check((sn_gemm){.m = 5, .n = 40, .k = 900, .b_form = SN_BF16, .c_form = SN_BF16, .trans_a = t & 1, .trans_b = t & 2}, 0,
              330 + (uint32_t)t);
    }
}

/* Beyond one packed piece in every direction: more rows than ROWS, K longer than a stretch. */
static void large(void **state) {
    (void)state;
    check((sn_gemm){.m = 1031, .n = 7, .k = 20, .trans_b = true}, 0, 401);
    check((sn_gemm){.m = 1031, .n = 3, .k = 3200}, 0, 402);
    check((sn_gemm){.m = 1, .n = 39, .k = 2111, .trans_b = true}, 0, 406);
    check((sn_gemm){.m = 1, .n = 39, .k = 2100, .b_form = SN_BF16, .trans_b = true}, 3, 407);
    check((sn_gemm){.m = 300, .n = 3, .k = 6000, .c_form = SN_F16, .trans_a = true}, 0, 403);
    check((sn_gemm){.m = 9, .n = 700, .k = 30, .trans_b = true}, 0, 405);
}

static void quantised_b(void **state) {
    (void)state;
    static const sn_dtype forms[] = {SN_Q4_0, SN_Q4_1, SN_Q5_0, SN_Q5_1, SN_Q8_0};
    for (int f = 0; f < 5; f++)
        for (int t = 0; t < 2; t++) {
            int64_t m = 14, n = t ? 45 : 416, k = t ? 416 : 45, cols = t ? k : n, rows = t ? n : k, blocks = cols / 32;
            float *w = sn_alloc((size_t)(rows * cols) * 4);
            test_fill(w, (size_t)(rows * cols), 500 + (uint32_t)f, 1);
            char *q = malloc((size_t)(rows * blocks) * elem(forms[f]));
            assert_ok(sn_from_f32(forms[f], w, rows * cols, q));
            sn_to_f32(forms[f], q, rows * cols, w);
            void *a = make(SN_F32, m * k, 510);
            float *want = sn_alloc((size_t)(m * n) * 4), *got = sn_alloc((size_t)(m * n) * 4);
            sn_gemm g = {.m = m, .n = n, .k = k, .a = a, .b = w, .lda = k, .ldb = cols, .ldc = n, .trans_b = t, .chain = true};
            naive(&g, want);
            g.b = q;
            g.b_form = forms[f];
            for (int i = 0; i < ISAS; i++)
                for (int threads = 1; runs(i) && threads < 4; threads++) {
                    memset(got, 0, (size_t)(m * n) * 4);
                    run(i, &g, got, threads);
                    assert_memory_equal(got, want, (size_t)(m * n) * 4);
                }
            free(a);
            free(q);
            sn_free(w);
            sn_free(want);
            sn_free(got);
        }
}

/* Rows [r, r + n) and columns computed alone have the bits they have in the whole. */
static void bits_do_not_depend_on_the_offset(void **state) {
    (void)state;
    enum { M = 61, N = 83, K = 419 };
    void *a = make(SN_BF16, M * K, 601), *b = make(SN_BF16, N * K, 602);
    float whole[M * N], part[M * N];
    for (int i = 0; i < ISAS; i++) {
        if (!runs(i)) continue;
        sn_gemm g = {
            .m = M, .n = N, .k = K, .a = a, .b = b, .lda = K, .ldb = K, .ldc = N, .a_form = SN_BF16, .b_form = SN_BF16, .trans_b = true};
        run(i, &g, whole, 2);
        static const int rows[][2] = {{0, 1}, {1, 13}, {14, 47}};
        for (int r = 0; r < 3; r++) {
            sn_gemm h = g;
            h.m = rows[r][1];
            h.chain = true;
            h.a = (char *)a + 2 * rows[r][0] * K;
            run(i, &h, part, 3);
            assert_memory_equal(part, whole + rows[r][0] * N, sizeof(float) * N * (size_t)rows[r][1]);
        }
        sn_gemm h = g;
        h.n = 20;
        h.b = (char *)b + 2 * 31 * K;
        run(i, &h, part, 1);
        for (int r = 0; r < M; r++) assert_memory_equal(part + r * N, whole + r * N + 31, sizeof(float) * 20);
    }
    free(a);
    free(b);
}

/* The pair kernel against f64, with the bound that gemm.h states. */
static void bf16_pairs_are_close(void **state) {
    (void)state;
    enum { M = 19, N = 45, K = 1001 };
    if (!runs(3)) skip();
    void *a = make(SN_BF16, M * K, 701), *b = make(SN_BF16, N * K, 702);
    float got[M * N];
    sn_gemm g = {
        .m = M, .n = N, .k = K, .a = a, .b = b, .lda = K, .ldb = K, .ldc = N, .a_form = SN_BF16, .b_form = SN_BF16, .trans_b = true};
    run(3, &g, got, 2);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                double p = (double)value(SN_BF16, a, i * K + k) * value(SN_BF16, b, j * K + k);
                sum += p;
                size += fabs(p);
            }
            if (!(fabs(sum - got[i * N + j]) <= K * 0x1p-23 * size)) fail_msg("%d %d: %g, wanted %g", i, j, (double)got[i * N + j], sum);
        }
    free(a);
    free(b);
}

/* Kernels that shrink their last chunk rely on it. */
static void scratch_never_falls_when_a_call_grows(void **state) {
    (void)state;
    static const sn_dtype forms[] = {SN_F32, SN_BF16};
    for (int i = 0; i < ISAS; i++)
        for (int f = 0; f < 4; f++)
            for (uint32_t s = 0; s < 300; s++) {
                sn_rng4 r = sn_philox(7, s, (uint32_t)i, (uint32_t)f, 0, 0);
                int64_t scale = (int64_t[]){40, 700, 5000}[s % 3];
                sn_gemm g = {
                    .m = 1 + r.v[0] % scale, .n = 1 + r.v[1] % scale, .k = 1 + r.v[2] % scale, .c_form = forms[f & 1], .chain = true};
                g.a_form = g.b_form = forms[f >> 1];
                size_t bytes = sn_gemm_scratch(isas[i].isa, &g, 2);
                assert_true(bytes <= sn_gemm_scratch(isas[i].isa, &g, 3));
                g.m += r.v[3] % 50;
                assert_true(bytes <= sn_gemm_scratch(isas[i].isa, &g, 2));
                g.k += r.v[3] / 50 % 50;
                assert_true(bytes <= sn_gemm_scratch(isas[i].isa, &g, 2));
                g.n += r.v[3] / 2500 % 50;
                assert_true(bytes <= sn_gemm_scratch(isas[i].isa, &g, 2));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_transpositions_and_odd_shapes),
        cmocka_unit_test(all_forms),
        cmocka_unit_test(accumulates_and_chains),
        cmocka_unit_test(large),
        cmocka_unit_test(quantised_b),
        cmocka_unit_test(bits_do_not_depend_on_the_offset),
        cmocka_unit_test(bf16_pairs_are_close),
        cmocka_unit_test(scratch_never_falls_when_a_call_grows),
    };
    return cmocka_run_group_tests(tests, open_teams, close_teams);
}
