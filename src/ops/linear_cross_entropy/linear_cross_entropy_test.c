#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/team.h"
#include "graph/op.h"
#include "ops/linear_cross_entropy/cross_entropy_rows.h"
#include "support/support.h"
#include "tensor/convert.h"

extern const sn_op sn_op_linear_cross_entropy;

static const sn_kernel *const tables[] = {sn_linear_cross_entropy_cpu, sn_linear_cross_entropy_avx2, sn_linear_cross_entropy_avx512,
                                          sn_linear_cross_entropy_avx512_bf16};
enum { TABLES = sizeof tables / sizeof *tables, REFERENCE = 0, PAIRS = 3 };
static bool runs(int t) { return (sn_cpu_features() & tables[t]->needs) == tables[t]->needs; }

/* A problem and room for its results. */
typedef struct problem {
    int64_t tokens, width, vocabulary;
    sn_dtype h_form, w_form, dw_form;
    float *h, *w; /* the values that the forms hold */
    void *h_stored, *w_stored;
    int32_t *labels;
    float scale;
    float *loss, *dh_values, *dw_values; /* results, decoded */
    void *dh, *dw;
} problem;

static problem make(int64_t tokens, int64_t width, int64_t vocabulary, sn_dtype h_form, sn_dtype w_form, sn_dtype dw_form) {
    problem p = {
        .tokens = tokens, .width = width, .vocabulary = vocabulary, .h_form = h_form, .w_form = w_form, .dw_form = dw_form, .scale = 0.25f};
    size_t h = (size_t)(tokens * width) + 1, w = (size_t)(vocabulary * width);
    p.h = sn_alloc_zero(h, 4);
    p.w = sn_alloc_zero(w, 4);
    p.h_stored = sn_alloc_zero(h, 4);
    p.w_stored = sn_alloc_zero(w, 4);
    p.labels = sn_alloc_zero((size_t)tokens + 1, 4);
    p.loss = sn_alloc_zero((size_t)tokens + 1, 4);
    p.dh = sn_alloc_zero(h, 4);
    p.dh_values = sn_alloc_zero(h, 4);
    p.dw = sn_alloc_zero(w, 4);
    p.dw_values = sn_alloc_zero(w, 4);
    test_fill(p.h, h - 1, 1, 1.5f);
    test_fill(p.w, w, 2, 1);
    if (tokens) assert_ok(sn_from_f32(h_form, p.h, (int64_t)h - 1, p.h_stored));
    assert_ok(sn_from_f32(w_form, p.w, (int64_t)w, p.w_stored));
    if (tokens) sn_to_f32(h_form, p.h_stored, (int64_t)h - 1, p.h);
    sn_to_f32(w_form, p.w_stored, (int64_t)w, p.w);
    for (int64_t t = 0; t < tokens; t++) p.labels[t] = t % 3 == 1 ? SN_NO_LABEL : (int32_t)(t * 7 % vocabulary);
    return p;
}

static void drop(problem *p) {
    void *all[] = {p->h, p->w, p->h_stored, p->w_stored, p->labels, p->loss, p->dh, p->dh_values, p->dw, p->dw_values};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sn_free(all[i]);
}

static void run(problem *p, int table, bool want_dh, bool want_dw, int64_t chunk, int threads) {
    sn_call c = {.n_in = 4, .n_out = 3, .attrs.i = {want_dh, want_dw, p->dw_form, chunk}};
    c.in[0] = (sn_tensor){p->h_stored, p->h_form, sn_shape_of(p->tokens, p->width)};
    c.in[1] = (sn_tensor){p->w_stored, p->w_form, sn_shape_of(p->vocabulary, p->width)};
    c.in[2] = (sn_tensor){p->labels, SN_I32, sn_shape_of(p->tokens)};
    c.in[3] = (sn_tensor){&p->scale, SN_F32, sn_shape_of(1)};
    assert_ok(sn_op_linear_cross_entropy.shape(&c));
    c.out[0].data = p->loss;
    c.out[1].data = p->dh;
    c.out[2].data = p->dw;
    memset(p->loss, 0x7f, (size_t)p->tokens * 4);
    memset(p->dh, 0x7f, (size_t)(p->tokens * p->width) * 4);
    memset(p->dw, 0x7f, (size_t)(p->vocabulary * p->width) * 4);
    assert_true(tables[table]->takes(&c));
    size_t bytes = tables[table]->scratch(&c, threads);
    if (posix_memalign(&c.scratch, 64, bytes + 64)) fail();
    memset(c.scratch, 0xa5, bytes + 64);
    assert_ok(sn_team_open(threads, NULL, &c.team));
    tables[table]->run(&c);
    sn_team_close(c.team);
    for (int i = 0; i < 64; i++) assert_int_equal(((uint8_t *)c.scratch)[bytes + (size_t)i], 0xa5);
    free(c.scratch);
    if (want_dh && p->tokens) sn_to_f32(p->h_form, p->dh, p->tokens * p->width, p->dh_values);
    if (want_dw) sn_to_f32(p->dw_form, p->dw, p->vocabulary * p->width, p->dw_values);
}

/* Everything in f64. */
static void reference(const problem *p, double *loss, double *dh, double *dw) {
    int64_t e = p->width, n = p->vocabulary;
    double *x = sn_alloc((size_t)n * 8);
    memset(dh, 0, (size_t)(p->tokens * e) * 8);
    memset(dw, 0, (size_t)(n * e) * 8);
    for (int64_t t = 0; t < p->tokens; t++) {
        loss[t] = 0;
        if (p->labels[t] < 0) continue;
        double max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < n; v++) {
            x[v] = 0;
            for (int64_t i = 0; i < e; i++) x[v] += (double)p->h[t * e + i] * p->w[v * e + i];
            max = fmax(max, x[v]);
        }
        for (int64_t v = 0; v < n; v++) sum += exp(x[v] - max);
        loss[t] = max + log(sum) - x[p->labels[t]];
        for (int64_t v = 0; v < n; v++) {
            double g = (double)p->scale * (exp(x[v] - max) / sum - (v == p->labels[t]));
            for (int64_t i = 0; i < e; i++) {
                dh[t * e + i] += g * p->w[v * e + i];
                dw[v * e + i] += g * p->h[t * e + i];
            }
        }
    }
    sn_free(x);
}

static double worst(const float *got, const double *want, int64_t n) {
    double w = 0;
    for (int64_t i = 0; i < n; i++) w = fmax(w, isfinite(got[i]) ? fabs((double)got[i] - want[i]) : INFINITY);
    return w;
}

static void compare(problem *p, double loss_within, double grad_within) {
    double *loss = sn_alloc((size_t)p->tokens * 8 + 8), *dh = sn_alloc((size_t)(p->tokens * p->width) * 8 + 8);
    double *dw = sn_alloc((size_t)(p->vocabulary * p->width) * 8);
    reference(p, loss, dh, dw);
    for (int t = 0; t < TABLES; t++) {
        if (!runs(t)) continue;
        run(p, t, true, sn_dtype_is_float(p->w_form), 16, 2);
        double a = worst(p->loss, loss, p->tokens), b = worst(p->dh_values, dh, p->tokens * p->width);
        double c = sn_dtype_is_float(p->w_form) ? worst(p->dw_values, dw, p->vocabulary * p->width) : 0;
        if (!(a <= loss_within && b <= grad_within && c <= grad_within)) fail_msg("%s: loss %g, dh %g, dw %g", tables[t]->name, a, b, c);
    }
    sn_free(loss);
    sn_free(dh);
    sn_free(dw);
}

static void as_in_double_precision(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 3, 5}, {37, 19, 301}, {50, 64, 1000}, {70, 5, 17}, {4, 8, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        problem p = make(sizes[s][0], sizes[s][1], sizes[s][2], SN_F32, SN_F32, SN_F32);
        compare(&p, 1e-5, 2e-6);
        drop(&p);
    }
    problem p = make(50, 24, 333, SN_BF16, SN_F32, SN_F32);
    compare(&p, 1e-5, 4e-3); /* dh is rounded to bf16 */
    drop(&p);
    p = make(50, 24, 333, SN_BF16, SN_BF16, SN_F32); /* the logits' gradient is bf16 too */
    compare(&p, 1e-5, 2e-2);
    drop(&p);
    p = make(50, 24, 333, SN_F16, SN_F16, SN_BF16);
    compare(&p, 1e-5, 2e-2);
    drop(&p);
    p = make(50, 64, 333, SN_F32, SN_Q8_0, SN_F32);
    compare(&p, 1e-5, 2e-6);
    drop(&p);
}

static void finite_differences(void **state) {
    (void)state;
    problem p = make(7, 6, 23, SN_F32, SN_F32, SN_F32);
    for (int table = 0; table < TABLES; table++) {
        if (!runs(table)) continue;
        run(&p, table, true, true, 0, 1);
        float *dh = sn_alloc((size_t)(p.tokens * p.width) * 4), *dw = sn_alloc((size_t)(p.vocabulary * p.width) * 4);
        memcpy(dh, p.dh_values, (size_t)(p.tokens * p.width) * 4);
        memcpy(dw, p.dw_values, (size_t)(p.vocabulary * p.width) * 4);
        for (int which = 0; which < 2; which++)
            for (int64_t i = 0; i < (which ? p.vocabulary : p.tokens) * p.width; i += 3) {
                float *x = (float *)(which ? p.w_stored : p.h_stored) + i, old = *x;
                double sum[2];
                for (int side = 0; side < 2; side++) {
                    *x = old + (side ? -0.01f : 0.01f);
                    run(&p, table, false, false, 0, 1);
                    sum[side] = 0;
                    for (int64_t t = 0; t < p.tokens; t++) sum[side] += (double)p.loss[t];
                }
                *x = old;
                double want = (sum[0] - sum[1]) / 0.02 * (double)p.scale, got = which ? dw[i] : dh[i];
                if (!(fabs(want - got) < 2e-4))
                    fail_msg("%s %s[%ld]: %g, by differences %g", tables[table]->name, which ? "dw" : "dh", i, got, want);
            }
        sn_free(dh);
        sn_free(dw);
    }
    drop(&p);
}

/* Chunks, threads and (but for bf16 pairs) processor families do not change a bit. */
static void same_bits(void **state) {
    (void)state;
    static const sn_dtype forms[][3] = {
        {SN_F32, SN_F32, SN_F32}, {SN_BF16, SN_BF16, SN_F32}, {SN_BF16, SN_F32, SN_BF16}, {SN_F32, SN_BF16, SN_F16}};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        problem p = make(583, 21, 517, forms[f][0], forms[f][1], forms[f][2]),
                q = make(583, 21, 517, forms[f][0], forms[f][1], forms[f][2]);
        bool paired = forms[f][0] == SN_BF16 && forms[f][1] == SN_BF16;
        run(&p, REFERENCE, true, true, 0, 1);
        for (int t = 0; t < TABLES; t++) {
            if (!runs(t)) continue;
            if (t == PAIRS && paired) run(&p, t, true, true, 0, 1);
            static const int64_t chunks[] = {0, 1, 256, 300, 1000};
            for (int i = 0; i < 5; i++) {
                run(&q, t, true, true, chunks[i], 1 + i % 3);
                assert_memory_equal(p.loss, q.loss, 583 * 4);
                assert_memory_equal(p.dh_values, q.dh_values, 583 * 21 * 4);
                assert_memory_equal(p.dw_values, q.dw_values, 517 * 21 * 4);
                run(&q, t, false, i & 1, chunks[i], 2);
                assert_memory_equal(p.loss, q.loss, 583 * 4);
            }
        }
        drop(&p);
        drop(&q);
    }
}

/* A 16-bit dw is the f32 one rounded once, in one chunk and in two passes. */
static void dw_in_16_bits_is_rounded_once(void **state) {
    (void)state;
    problem p = make(290, 16, 700, SN_F32, SN_F32, SN_F32), q = make(290, 16, 700, SN_F32, SN_F32, SN_BF16);
    run(&p, REFERENCE, true, true, 0, 1);
    for (int t = 0; t < TABLES; t++)
        for (int64_t chunk = 256; runs(t) && chunk <= 512; chunk += 256) {
            run(&q, t, true, true, chunk, 2);
            assert_memory_equal(p.dh_values, q.dh_values, 290 * 16 * 4);
            for (int i = 0; i < 700 * 16; i++) assert_true(q.dw_values[i] == sn_bf16_to_f32(sn_f32_to_bf16(p.dw_values[i])));
        }
    drop(&p);
    drop(&q);
}

/* The rounding to f32 hides most differences of order: the row functions themselves. */
static void sums_have_one_order(void **state) {
    (void)state;
    static const struct {
        const sn_cross_entropy_rows *rows;
        uint32_t needs;
    } families[] = {{&sn_cross_entropy_rows_avx2, SN_CPU_AVX2}, {&sn_cross_entropy_rows_avx512, SN_CPU_AVX512}};
    float x[200];
    test_fill(x, 200, 77, 30); /* terms so far apart that sums of 53 bits are not exact */
    for (int f = 0; f < 2; f++)
        for (int64_t n = 1; n <= 200 && (sn_cpu_features() & families[f].needs) == families[f].needs; n++) {
            float max = sn_cross_entropy_rows_cpu.max(x, n);
            assert_true(families[f].rows->max(x, n) == max);
            assert_true(families[f].rows->sum_exp(x, n, max) == sn_cross_entropy_rows_cpu.sum_exp(x, n, max));
        }
}

static void tokens_without_a_label(void **state) {
    (void)state;
    for (int t = 0; t < TABLES; t++)
        for (int f = 0; f < 2; f++) {
            if (!runs(t)) continue;
            problem p = make(40, 12, 60, SN_F32, SN_F32, f ? SN_BF16 : SN_F32);
            run(&p, t, true, true, 8, 2);
            for (int i = 0; i < 40; i++) {
                bool none = p.labels[i] == SN_NO_LABEL;
                assert_true((p.loss[i] == 0) == none);
                for (int e = 0; e < 12; e++) assert_true((p.dh_values[i * 12 + e] == 0) == none);
            }
            for (int i = 0; i < 40; i++) p.labels[i] = SN_NO_LABEL;
            p.labels[3] = 60; /* not in the vocabulary */
            run(&p, t, true, true, 8, 2);
            for (int i = 0; i < 40 * 12; i++) assert_true(p.dh_values[i] == 0 && p.loss[i / 12] == 0);
            for (int i = 0; i < 60 * 12; i++) assert_true(p.dw_values[i] == 0);
            drop(&p);
            p = make(0, 12, 60, SN_F32, SN_F32, SN_F32);
            run(&p, t, true, true, 0, 1);
            for (int i = 0; i < 60 * 12; i++) assert_true(p.dw_values[i] == 0);
            drop(&p);
        }
}

static void extreme_logits(void **state) {
    (void)state;
    for (int t = 0; t < TABLES; t++) {
        if (!runs(t)) continue;
        problem p = make(3, 1, 40, SN_F32, SN_F32, SN_F32);
        float *h = p.h_stored, *w = p.w_stored;
        for (int i = 0; i < 40; i++) w[i] = i == 5 ? 1e4f : -1e4f;
        h[0] = h[1] = h[2] = 1;
        p.labels[0] = 5;
        p.labels[1] = 6;
        p.labels[2] = 5;
        run(&p, t, true, true, 0, 1);
        assert_true(p.loss[0] == 0 && p.loss[1] == 2e4f);
        for (int i = 0; i < 3; i++) assert_true(isfinite(p.dh_values[i]));
        h[2] = NAN;
        run(&p, t, true, true, 0, 1);
        assert_true(isnan(p.loss[2]) && isnan(p.dh_values[2]) && p.loss[1] == 2e4f);
        drop(&p);
    }
}

static void shape_rule(void **state) {
    (void)state;
    sn_call c = {.n_in = 4, .n_out = 3};
    c.in[0] = (sn_tensor){.dtype = SN_BF16, .shape = sn_shape_of(10, 64)};
    c.in[1] = (sn_tensor){.dtype = SN_Q4_0, .shape = sn_shape_of(100, 64)};
    c.in[2] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(10)};
    c.in[3] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(1)};
    c.attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DH] = 1;
    assert_ok(sn_op_linear_cross_entropy.shape(&c));
    assert_int_equal(c.out[1].dtype, SN_BF16);
    assert_int_equal(c.out[2].shape.rank, 0);
    assert_true(sn_op_linear_cross_entropy.cost(&c).flops == 4.0 * 10 * 64 * 100);
    assert_true(sn_op_linear_cross_entropy.accepts(&c, 1, SN_Q6_K));
    c.attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW] = 1;
    assert_false(sn_op_linear_cross_entropy.accepts(&c, 1, SN_Q6_K));
    assert_int_equal(sn_op_linear_cross_entropy.shape(&c), SN_ERR_UNSUPPORTED);
    assert_non_null(strstr(sn_error_text(), "q4_0"));
    c.in[1].dtype = SN_F32;
    c.attrs.i[SN_LINEAR_CROSS_ENTROPY_DW_DTYPE] = SN_I8;
    assert_int_equal(sn_op_linear_cross_entropy.shape(&c), SN_ERR_SHAPE);
    c.attrs.i[SN_LINEAR_CROSS_ENTROPY_DW_DTYPE] = SN_BF16;
    assert_ok(sn_op_linear_cross_entropy.shape(&c));
    c.attrs.i[SN_LINEAR_CROSS_ENTROPY_CHUNK] = -1;
    assert_int_equal(sn_op_linear_cross_entropy.shape(&c), SN_ERR_SHAPE);
    c.attrs.i[SN_LINEAR_CROSS_ENTROPY_CHUNK] = 0;
    c.in[1].shape.d[1] = 63;
    assert_int_equal(sn_op_linear_cross_entropy.shape(&c), SN_ERR_SHAPE);
    c.in[1].shape.d[1] = 64;
    c.in[2].dtype = SN_I64;
    assert_int_equal(sn_op_linear_cross_entropy.shape(&c), SN_ERR_SHAPE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_double_precision),
        cmocka_unit_test(finite_differences),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(dw_in_16_bits_is_rounded_once),
        cmocka_unit_test(tokens_without_a_label),
        cmocka_unit_test(sums_have_one_order),
        cmocka_unit_test(extreme_logits),
        cmocka_unit_test(shape_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
