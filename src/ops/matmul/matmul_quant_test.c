#include "ops/matmul/matmul_quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/support.h"
#include "tensor/convert.h"

static const sn_kernel *const TABLES[] = {sn_matmul_quant_cpu, sn_matmul_quant_avx2, sn_matmul_quant_avx512, sn_matmul_quant_avx512_vnni};
enum { N_TABLES = sizeof TABLES / sizeof *TABLES };
static const sn_dtype WEIGHTS[] = {SN_Q4_0, SN_Q4_1, SN_Q5_0, SN_Q5_1, SN_Q8_0, SN_Q2_K, SN_Q3_K, SN_Q4_K, SN_Q5_K, SN_Q6_K};
enum { N_WEIGHTS = sizeof WEIGHTS / sizeof *WEIGHTS };

/* Random blocks: every code, scales of about 0.01 with both signs. */
static void random_weights(sn_dtype t, uint8_t *data, int64_t n_blocks, uint32_t seed) {
    static const int halves[SN_DTYPE_COUNT][2] = {
        [SN_Q4_0] = {0, 0},   [SN_Q4_1] = {0, 2},     [SN_Q5_0] = {0, 0}, [SN_Q5_1] = {0, 2}, [SN_Q8_0] = {0, 0},
        [SN_Q2_K] = {80, 82}, [SN_Q3_K] = {108, 108}, [SN_Q4_K] = {0, 2}, [SN_Q5_K] = {0, 2}, [SN_Q6_K] = {208, 208}};
    const int bytes = sn_dtypes[t].bytes;
    for (int64_t i = 0; i < n_blocks * bytes; i++) data[i] = (uint8_t)sn_philox(seed, t, (uint32_t)i, 0, 0, 0).v[0];
    for (int64_t i = 0; i < n_blocks; i++)
        for (int k = 0; k < 2; k++) {
            sn_rng4 r = sn_philox(seed, t, (uint32_t)i, 1, (uint32_t)k, 0);
            uint16_t h = sn_f32_to_f16((sn_uniform(r.v[0]) - 0.5f) * 0.02f);
            memcpy(data + i * bytes + halves[t][k], &h, 2);
        }
}

typedef struct problem {
    sn_call c;
    uint8_t *a, *b;
    float *bias;
} problem;

static problem make(sn_dtype w, int64_t m, int64_t n, int64_t k, bool with_bias, uint32_t seed) {
    problem p = {.c = {.n_in = with_bias ? 3 : 2, .n_out = 1}};
    p.c.attrs.i[1] = 1;
    p.c.attrs.i[2] = SN_F32;
    p.c.in[0] = (sn_tensor){NULL, sn_quant_activation(w), sn_shape_of(m, k)};
    p.c.in[1] = (sn_tensor){NULL, w, sn_shape_of(n, k)};
    p.c.out[0] = (sn_tensor){NULL, SN_F32, sn_shape_of(m, n)};
    float *x = sn_alloc((size_t)(m * k) * 4);
    test_fill(x, (size_t)(m * k), seed, 1);
    x[0] = 0, x[1] = 3; /* one code near 127 */
    p.c.in[0].data = p.a = sn_alloc(sn_tensor_bytes(&p.c.in[0]));
    p.c.in[1].data = p.b = sn_alloc(sn_tensor_bytes(&p.c.in[1])); /* exact size: ASan sees reads beyond it */
    assert_ok(sn_from_f32(p.c.in[0].dtype, x, m * k, p.a));
    random_weights(w, p.b, n * k / sn_dtypes[w].block, seed);
    sn_free(x);
    if (with_bias) {
        p.c.in[2] = (sn_tensor){p.bias = sn_alloc((size_t)n * 4), SN_F32, sn_shape_of(n)};
        test_fill(p.bias, (size_t)n, seed + 1, 1);
    }
    return p;
}

static void drop(problem *p) {
    sn_free(p->a);
    sn_free(p->b);
    sn_free(p->bias);
}

static void run_kernel(const sn_kernel *k, sn_call c, void *y, sn_team *team) {
    assert_true(k->takes(&c));
    size_t bytes = k->scratch ? k->scratch(&c, sn_team_size(team)) : 0;
    uint8_t *memory = sn_alloc(bytes + 64);
    c.scratch = memory + (64 - (uintptr_t)memory % 64) % 64;
    memset(c.scratch, 0xff, bytes); /* nothing may be read before it is written */
    c.team = team;
    c.out[0].data = y;
    k->run(&c);
    sn_free(memory);
}

/* Relative to sum |w x|: what re-rounding a chain of K / block terms may cost. */
static void check_double(const problem *p, const float *y) {
    const int64_t m = p->c.in[0].shape.d[0], n = p->c.in[1].shape.d[0], k = p->c.in[1].shape.d[1];
    float *x = sn_alloc((size_t)(m * k) * 4), *w = sn_alloc((size_t)(n * k) * 4);
    sn_to_f32(p->c.in[0].dtype, p->a, m * k, x);
    sn_to_f32(p->c.in[1].dtype, p->b, n * k, w);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = p->bias ? p->bias[j] : 0, size = fabs(sum);
            for (int64_t l = 0; l < k; l++) {
                sum += (double)x[i * k + l] * w[j * k + l];
                size += fabs((double)x[i * k + l] * w[j * k + l]);
            }
            if (!(fabs(y[i * n + j] - sum) <= 2e-6 * size))
                fail_msg("%s [%lld,%lld]: %g, wanted %g", sn_dtype_name(p->c.in[1].dtype), (long long)i, (long long)j, y[i * n + j], sum);
        }
    sn_free(x);
    sn_free(w);
}

static void one_case(sn_dtype w, int64_t m, int64_t n, int64_t k, bool with_bias, sn_team *team) {
    problem p = make(w, m, n, k, with_bias, (uint32_t)(m * 1000 + n));
    const size_t bytes = (size_t)(m * n) * 4;
    float *want = sn_alloc(bytes), *y = sn_alloc(bytes);
    run_kernel(sn_matmul_quant_cpu, p.c, want, NULL);
    check_double(&p, want);
    for (int i = 1; i < N_TABLES; i++) {
        if ((sn_cpu_features() & TABLES[i]->needs) != TABLES[i]->needs) continue;
        for (int threads = 0; threads < 2; threads++) {
            memset(y, 0xff, bytes);
            run_kernel(TABLES[i], p.c, y, threads ? team : NULL);
            if (memcmp(y, want, bytes))
                fail_msg("%s: %s, m %lld n %lld k %lld: other bits than the reference", TABLES[i]->name, sn_dtype_name(w), (long long)m,
                         (long long)n, (long long)k);
        }
    }
    sn_free(want);
    sn_free(y);
    drop(&p);
}

static void all_formats_and_shapes(void **state) {
    (void)state;
    static const int64_t ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33}, ns[] = {1, 7, 8, 16, 17, 61};
    sn_team *team;
    assert_ok(sn_team_open(3, NULL, &team));
    for (int f = 0; f < N_WEIGHTS; f++) {
        const int block = sn_dtypes[WEIGHTS[f]].block;
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
            for (size_t j = 0; j < sizeof ns / sizeof *ns; j++)
                one_case(WEIGHTS[f], ms[i], ns[j], block * (1 + (int)(i + j) % 3), (i + j) % 2, team);
        one_case(WEIGHTS[f], 3, 600, block * 5, true, team); /* several panels a task */
        one_case(WEIGHTS[f], 1, 300, block * 18, false, team);
    }
    sn_team_close(team);
}

/* Extreme codes everywhere: no 16-bit intermediate may saturate. */
static void largest_codes(void **state) {
    (void)state;
    for (int f = 0; f < N_WEIGHTS; f++)
        for (int sign = 0; sign < 2; sign++)
            for (int fill = 0; fill < 3; fill++) {
                const sn_dtype w = WEIGHTS[f];
                problem p = make(w, 5, 16, 512, false, 1);
                const uint8_t with[3] = {0xff, 0x80, 0x00};
                uint8_t *halves = sn_alloc(sn_tensor_bytes(&p.c.in[1]));
                memcpy(halves, p.b, sn_tensor_bytes(&p.c.in[1]));
                memset(p.b, with[fill], sn_tensor_bytes(&p.c.in[1]));
                for (int64_t i = 0; i < 16 * 512 / sn_dtypes[w].block; i++) { /* finite scales */
                    const int at = w == SN_Q6_K ? 208 : w == SN_Q3_K ? 108 : w == SN_Q2_K ? 80 : 0, bytes = sn_dtypes[w].bytes;
                    memcpy(p.b + i * bytes + at, halves + i * bytes + at, w == SN_Q6_K || w == SN_Q3_K || !sn_block_has_min(w) ? 2 : 4);
                }
                float *x = sn_alloc(5 * 512 * 4);
                for (int i = 0; i < 5 * 512; i++) x[i] = sign ? -1 : 1;
                assert_ok(sn_from_f32(p.c.in[0].dtype, x, 5 * 512, p.a));
                float want[80], y[80];
                run_kernel(sn_matmul_quant_cpu, p.c, want, NULL);
                check_double(&p, want);
                for (int i = 1; i < N_TABLES; i++) {
                    if ((sn_cpu_features() & TABLES[i]->needs) != TABLES[i]->needs) continue;
                    run_kernel(TABLES[i], p.c, y, NULL);
                    if (memcmp(y, want, sizeof y)) fail_msg("%s: %s filled with %02x", TABLES[i]->name, sn_dtype_name(w), with[fill]);
                }
                sn_free(x);
                sn_free(halves);
                drop(&p);
            }
}

/* Row i of y is the same when only some rows of a, or of b, are given. */
static void independent_of_place(void **state) {
    (void)state;
    for (int f = 0; f < N_WEIGHTS; f++)
        for (int i = 0; i < N_TABLES; i++) {
            if ((sn_cpu_features() & TABLES[i]->needs) != TABLES[i]->needs) continue;
            problem p = make(WEIGHTS[f], 13, 50, 512, true, 77);
            float all[13 * 50], part[13 * 50];
            run_kernel(TABLES[i], p.c, all, NULL);
            sn_call c = p.c;
            c.in[0].data = p.a + 6 * sn_row_bytes(&c.in[0]);
            c.in[0].shape.d[0] = c.out[0].shape.d[0] = 5;
            run_kernel(TABLES[i], c, part, NULL);
            assert_memory_equal(part, all + 6 * 50, 5 * 50 * 4);
            c = p.c;
            c.in[1].data = p.b + 9 * sn_row_bytes(&c.in[1]);
            c.in[1].shape.d[0] = c.out[0].shape.d[1] = c.in[2].shape.d[0] = 20;
            c.in[2].data = p.bias + 9;
            run_kernel(TABLES[i], c, part, NULL);
            for (int m = 0; m < 13; m++) assert_memory_equal(part + m * 20, all + m * 50 + 9, 20 * 4);
            drop(&p);
        }
}

static void results_in_16_bits(void **state) {
    (void)state;
    for (int i = 0; i < N_TABLES; i++) {
        if ((sn_cpu_features() & TABLES[i]->needs) != TABLES[i]->needs) continue;
        problem p = make(SN_Q4_1, 9, 21, 96, false, 5);
        uint16_t bias[21], y[9 * 21], rounded[9 * 21];
        float wide[9 * 21];
        for (int j = 0; j < 21; j++) bias[j] = sn_f32_to_bf16((float)j / 7);
        p.c.in[2] = (sn_tensor){bias, SN_BF16, sn_shape_of(21)};
        p.c.n_in = 3;
        run_kernel(TABLES[i], p.c, wide, NULL);
        const sn_dtype forms[] = {SN_BF16, SN_F16};
        for (int f = 0; f < 2; f++) {
            p.c.out[0].dtype = forms[f];
            run_kernel(TABLES[i], p.c, y, NULL);
            assert_ok(sn_from_f32(forms[f], wide, 9 * 21, rounded));
            assert_memory_equal(y, rounded, sizeof y);
        }
        drop(&p);
    }
}

static void what_kernels_take(void **state) {
    (void)state;
    problem p = make(SN_Q4_1, 2, 3, 64, false, 5);
    sn_call c = p.c;
    assert_true(sn_quant_takes(&c));
    c.in[0].dtype = SN_Q8_K;
    assert_false(sn_quant_takes(&c));
    c = p.c;
    c.attrs.i[1] = 0;
    assert_false(sn_quant_takes(&c));
    c = p.c;
    c.in[1].dtype = SN_Q8_1; /* an activation's form is no weight's */
    assert_false(sn_quant_takes(&c));
    drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_formats_and_shapes), cmocka_unit_test(largest_codes),     cmocka_unit_test(independent_of_place),
        cmocka_unit_test(results_in_16_bits),     cmocka_unit_test(what_kernels_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
