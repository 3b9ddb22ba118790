#include "support/small_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/linear_cross_entropy/cross_entropy_part.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/math/rows.h"

extern const sn_op sn_op_linear_cross_entropy, sn_op_cross_entropy_part, sn_op_cross_entropy_join, sn_op_cross_entropy_part_grad;

enum { TOKENS = 61, WIDTH = 19, VOCAB = 97 };

static const struct {
    const sn_kernel *whole, *part, *grad;
} families[] = {{sn_linear_cross_entropy_cpu, sn_cross_entropy_part_cpu, sn_cross_entropy_part_grad_cpu},
                {sn_linear_cross_entropy_avx2, sn_cross_entropy_part_avx2, sn_cross_entropy_part_grad_avx2},
                {sn_linear_cross_entropy_avx512, sn_cross_entropy_part_avx512, sn_cross_entropy_part_grad_avx512},
                {sn_linear_cross_entropy_avx512_bf16, sn_cross_entropy_part_avx512_bf16, sn_cross_entropy_part_grad_avx512_bf16}};
enum { FAMILIES = sizeof families / sizeof *families };

static void run_kernel(const sn_kernel *k, sn_call *c) {
    assert_true(k->takes(c));
    assert_int_equal(posix_memalign(&c->scratch, 64, k->scratch(c, 1)), 0);
    k->run(c);
    free(c->scratch);
    c->scratch = NULL;
}

static sn_tensor labels_of(int64_t tokens) {
    int32_t labels[1024];
    for (int64_t t = 0; t < tokens; t++) labels[t] = t % 5 == 2 ? SN_NO_LABEL : t == 3 ? VOCAB : (int32_t)(t * 31 % VOCAB);
    return op_tensor_i32(sn_shape_of(tokens), labels);
}

/* The whole op: loss, dh, dw. */
static sn_call whole_of(const sn_kernel *k, sn_dtype form, sn_dtype dw_form, int64_t tokens, int64_t chunk, float scale) {
    sn_call c = {.attrs = {.i = {1, 1, dw_form, chunk}}};
    c.in[0] = op_tensor(form, sn_shape_of(tokens, WIDTH), 1, 1.5f);
    c.in[1] = op_tensor(form, sn_shape_of(VOCAB, WIDTH), 2, 1);
    c.in[2] = labels_of(tokens);
    c.in[3] = op_tensor_of(SN_F32, sn_shape_of(1), &scale);
    op_prepare(&sn_op_linear_cross_entropy, &c, 4);
    run_kernel(k, &c);
    return c;
}

/* Rows [first, first + n) of the problem's w. */
static sn_tensor rows_of(const sn_tensor *w, int64_t first, int64_t n) {
    sn_tensor x = *w;
    x.data = (char *)w->data + first * (int64_t)sn_row_bytes(w);
    x.shape.d[0] = n;
    return x;
}

static int64_t begin_of(int parts, int p) { return (VOCAB + parts - 1) / parts * p; }

/* The same in parts: what every rank computes, gathered; sums of dh in f64, rows of dw one after another. */
typedef struct result {
    sn_call join;
    double *dh;
    sn_tensor dw;
} result;

static result in_parts(int family, const sn_call *whole, int parts) {
    const int64_t tokens = whole->in[0].shape.d[0];
    result r = {.dh = sn_alloc_zero((size_t)(tokens * WIDTH), sizeof(double))};
    sn_call *j = &r.join;
    j->attrs.i[SN_CROSS_ENTROPY_JOIN_VOCAB] = VOCAB;
    j->in[0] = op_tensor(SN_F64, sn_shape_of(parts, tokens, SN_CROSS_ENTROPY_NORM), 0, 0);
    j->in[1] = labels_of(tokens);
    j->in[2] = op_tensor_of(SN_F32, sn_shape_of(1), (const float *)whole->in[3].data);
    for (int p = 0; p < parts; p++) {
        sn_call c = {.n_in = 3, .n_out = 1, .attrs = {.i = {[SN_CROSS_ENTROPY_PART_PARTS] = parts, [SN_CROSS_ENTROPY_PART_VOCAB] = VOCAB}}};
        memcpy(c.in, whole->in, sizeof c.in);
        assert_ok(sn_op_cross_entropy_part.shape(&c));
        c.attrs.i[SN_CROSS_ENTROPY_PART_CHUNK] = whole->attrs.i[SN_LINEAR_CROSS_ENTROPY_CHUNK];
        c.attrs.i[SN_CROSS_ENTROPY_PART_FIRST] = begin_of(parts, p);
        c.in[1] = rows_of(&whole->in[1], begin_of(parts, p), sn_min_i64(begin_of(parts, p + 1), VOCAB) - begin_of(parts, p));
        c.out[0].shape.d[0] = 1; /* its own */
        c.out[0].data = (double *)j->in[0].data + p * tokens * SN_CROSS_ENTROPY_NORM;
        run_kernel(families[family].part, &c);
    }
    op_prepare(&sn_op_cross_entropy_join, j, 3);
    op_same_bits(&sn_op_cross_entropy_join, j);
    r.dw = op_tensor(whole->out[2].dtype, whole->out[2].shape, 0, 0);
    for (int p = 0; p < parts; p++) {
        sn_call c = {.n_in = 4, .n_out = 2};
        memcpy(c.in, whole->in, sizeof c.in);
        memcpy(c.attrs.i, whole->attrs.i, sizeof c.attrs.i);
        c.in[3] = j->out[1];
        c.attrs.i[SN_CROSS_ENTROPY_PART_VOCAB] = VOCAB;
        assert_ok(sn_op_cross_entropy_part_grad.shape(&c));
        c.attrs.i[SN_CROSS_ENTROPY_PART_FIRST] = begin_of(parts, p);
        c.in[1] = rows_of(&whole->in[1], begin_of(parts, p), sn_min_i64(begin_of(parts, p + 1), VOCAB) - begin_of(parts, p));
        c.out[0] = op_tensor(c.in[0].dtype, c.in[0].shape, 0, 0);
        sn_tensor rows = rows_of(&r.dw, begin_of(parts, p), c.in[1].shape.d[0]);
        c.out[1] = rows;
        run_kernel(families[family].grad, &c);
        for (int64_t i = 0; i < tokens * WIDTH; i++) r.dh[i] += op_get(&c.out[0], i);
        op_free_tensor(&c.out[0]);
    }
    return r;
}

static void free_result(result *r) {
    op_free_call(&r->join);
    op_free_tensor(&r->dw);
    sn_free(r->dh);
}

static bool runs(int f) { return (sn_cpu_features() & families[f].part->needs) == families[f].part->needs; }

/* One part has the whole op's bits; several differ in how sums are rounded. */
static void as_the_whole(void **state) {
    (void)state;
    static const struct {
        sn_dtype form, dw;
        int64_t tokens, chunk;
        double within;
    } cases[] = {{SN_F32, SN_F32, TOKENS, 0, 2e-6},
                 {SN_BF16, SN_F32, TOKENS, 0, 2e-2},
                 {SN_BF16, SN_BF16, 600, 256, 4e-2},
                 {SN_F32, SN_BF16, 600, 256, 4e-2}};
    for (int f = 0; f < FAMILIES; f++)
        for (size_t k = 0; runs(f) && k < sizeof cases / sizeof *cases; k++) {
            sn_call whole = whole_of(families[f].whole, cases[k].form, cases[k].dw, cases[k].tokens, cases[k].chunk, 0.25f);
            for (int parts = 1; parts <= 3; parts++) {
                result r = in_parts(f, &whole, parts);
                for (int64_t t = 0; t < cases[k].tokens; t++)
                    assert_true(fabs(op_get(&whole.out[0], t) - op_get(&r.join.out[0], t)) <= (parts > 1 ? 1e-6 : 0));
                for (int64_t i = 0; i < cases[k].tokens * WIDTH; i++) {
                    if (!(fabs(op_get(&whole.out[1], i) - r.dh[i]) <= (parts > 1 ? cases[k].within : 0)))
                        fail_msg("dh %g, %g", op_get(&whole.out[1], i), r.dh[i]);
                }
                for (int64_t i = 0; i < VOCAB * WIDTH; i++) {
                    if (!(fabs(op_get(&whole.out[2], i) - op_get(&r.dw, i)) <= (parts > 1 ? cases[k].within : 0)))
                        fail_msg("dw %g, %g", op_get(&whole.out[2], i), op_get(&r.dw, i));
                }
                free_result(&r);
            }
            op_free_call(&whole);
        }
}

static double loss_in_parts(int f, const sn_call *whole) {
    result r = in_parts(f, whole, 3);
    double sum = 0;
    for (int64_t t = 0; t < TOKENS; t++) sum += op_get(&r.join.out[0], t);
    free_result(&r);
    return sum;
}

static void finite_differences(void **state) {
    (void)state;
    const float scale = 0.5f;
    for (int f = 0; f < FAMILIES; f++) {
        if (!runs(f)) continue;
        sn_call whole = whole_of(families[f].whole, SN_F32, SN_F32, TOKENS, 0, scale);
        result r = in_parts(f, &whole, 3);
        for (int which = 0; which < 2; which++)
            for (int64_t i = 0; i < (which ? VOCAB : TOKENS) * WIDTH; i += 67) {
                float *x = (float *)whole.in[which].data + i, old = *x;
                *x = old + 0.01f;
                double up = loss_in_parts(f, &whole);
                *x = old - 0.01f;
                double down = loss_in_parts(f, &whole), want = (up - down) / 0.02 * (double)scale, got = which ? op_get(&r.dw, i) : r.dh[i];
                *x = old;
                if (!(fabs(want - got) < 5e-4)) fail_msg("%s[%ld]: %g, by differences %g", which ? "dw" : "dh", (long)i, got, want);
            }
        free_result(&r);
        op_free_call(&whole);
    }
}

static void a_token_that_is_nan(void **state) {
    (void)state;
    sn_call whole = whole_of(sn_linear_cross_entropy_cpu, SN_F32, SN_F32, TOKENS, 0, 1);
    ((float *)whole.in[0].data)[0] = NAN;
    result r = in_parts(0, &whole, 2);
    assert_true(isnan(op_get(&r.join.out[0], 0)) && isnan(r.dh[0]));
    assert_true(isfinite(op_get(&r.join.out[0], 1)) && isfinite(r.dh[WIDTH]));
    assert_true(op_get(&r.join.out[0], 2) == 0 && op_get(&r.join.out[0], 3) == 0); /* no label, none of the vocabulary */
    free_result(&r);
    op_free_call(&whole);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(4, 8)},
                        {.dtype = SN_F32, .shape = sn_shape_of(9, 8)},
                        {.dtype = SN_I32, .shape = sn_shape_of(4)}}};
    c.attrs.i[SN_CROSS_ENTROPY_PART_VOCAB] = 9;
    op_refused(&sn_op_cross_entropy_part, &c, 3, "parts must be 1 or more");
    c.attrs.i[SN_CROSS_ENTROPY_PART_PARTS] = 2;
    c.attrs.i[SN_CROSS_ENTROPY_PART_VOCAB] = 8;
    op_refused(&sn_op_cross_entropy_part, &c, 3, "vocab must be the 9 rows of w");
    c.attrs.i[SN_CROSS_ENTROPY_PART_VOCAB] = 9;
    c.in[2].shape = sn_shape_of(5);
    op_refused(&sn_op_cross_entropy_part, &c, 3, "labels must be [4], found [5]");
    c.in[2].shape = sn_shape_of(4);
    c.in[3] = (sn_tensor){.dtype = SN_F64, .shape = sn_shape_of(4, 2)};
    op_refused(&sn_op_cross_entropy_part_grad, &c, 4, "norm must be [4,3], found [4,2]");
    c.in[3].shape = sn_shape_of(4, 3);
    c.in[1].dtype = SN_Q8_0;
    c.in[1].shape.d[1] = c.in[0].shape.d[1] = 32;
    c.attrs.i[SN_LINEAR_CROSS_ENTROPY_WANT_DW] = 1;
    c.n_in = 4;
    assert_int_equal(sn_op_cross_entropy_part_grad.shape(&c), SN_ERR_UNSUPPORTED);
    assert_non_null(strstr(sn_error_text(), "q8_0"));
    sn_call j = {.in = {{.dtype = SN_F64, .shape = sn_shape_of(2, 4, 2)},
                        {.dtype = SN_I32, .shape = sn_shape_of(4)},
                        {.dtype = SN_F32, .shape = sn_shape_of(1)}}};
    op_refused(&sn_op_cross_entropy_join, &j, 3, "part must be [parts,T,3], found [2,4,2]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_whole), cmocka_unit_test(finite_differences),
                                       cmocka_unit_test(a_token_that_is_nan), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
