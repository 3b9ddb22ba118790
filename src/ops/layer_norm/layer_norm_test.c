#include "support/small_ops.h"

#include <math.h>

#include "base/mem.h"
#include "ops/layer_norm/layer_norm.h"

extern const sn_op sn_op_layer_norm, sn_op_layer_norm_grad;

#define EPS 1e-5

/* y of one row in f64; returns rstd. b may be NULL. */
static double row_f64(const double *x, const double *w, const double *b, int64_t n, double *y) {
    double mean = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    double rstd = 1 / sqrt(sum / (double)n + EPS);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * w[i] + (b ? b[i] : 0);
    return rstd;
}

static double *wide(const sn_tensor *t) {
    double *out = sn_alloc((size_t)(sn_elements(t) + 1) * sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < sn_elements(t); i++) out[i] = op_get(t, i);
    return out;
}

static void forward(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) for (int bias = 0; bias <= 1; bias++) {
        const int64_t rows = test_shapes[s][0], columns = test_shapes[s][1];
        sn_call c = {.attrs = {.f = {[SN_LAYER_NORM_EPS] = EPS}}};
        c.in[0] = op_tensor(test_forms[a], sn_shape_of(rows, columns), 1, 3);
        c.in[1] = op_tensor(test_forms[b], sn_shape_of(columns), 2, 2);
        if (bias) c.in[2] = op_tensor(test_forms[b], sn_shape_of(columns), 3, 2);
        op_prepare(&sn_op_layer_norm, &c, bias ? 3 : 2);
        op_same_bits(&sn_op_layer_norm, &c);
        double *x = wide(&c.in[0]), *w = wide(&c.in[1]), *add = bias ? wide(&c.in[2]) : NULL;
        double *y = sn_alloc((size_t)(rows * columns + 1) * sizeof *y);
        for (int64_t r = 0; columns && r < rows; r++) {
            double rstd = row_f64(x + r * columns, w, add, columns, y + r * columns);
            assert_true(fabs(op_get(&c.out[2], r) / rstd - 1) < 2e-6);
        }
        assert_true(op_tensor_error(&c.out[0], y) <= op_tolerance(test_forms[a]));
        sn_free(x);
        sn_free(w);
        sn_free(add);
        sn_free(y);
        op_in_place(&sn_op_layer_norm, &c);
        op_free_call(&c);
    }
}

static void far_from_zero(void **state) { /* the variance of values around 1000 keeps its digits: two passes */
    (void)state;
    sn_call c = {.attrs = {.f = {[SN_LAYER_NORM_EPS] = 0}}};
    c.in[0] = op_tensor_of(SN_F32, sn_shape_of(1, 4), (float[]){1000, 1001, 1002, 1003});
    c.in[1] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){1, 1, 1, 1});
    op_prepare(&sn_op_layer_norm, &c, 2);
    op_run(&sn_op_layer_norm, &c);
    assert_true(fabs(op_get(&c.out[2], 0) - 1 / sqrt(1.25)) < 1e-6);
    op_free_call(&c);
}

static sn_call grad_call(sn_dtype form, int64_t rows, int64_t columns, bool want_dw, bool want_db) {
    sn_call f = {.attrs = {.f = {[SN_LAYER_NORM_EPS] = EPS}}};
    sn_call c = {.attrs = {.i = {[SN_LAYER_NORM_GRAD_WANT_DW] = want_dw, [SN_LAYER_NORM_GRAD_WANT_DB] = want_db}}};
    f.in[0] = op_tensor(form, sn_shape_of(rows, columns), 1, 3);
    f.in[1] = op_tensor(SN_F32, sn_shape_of(columns), 2, 2);
    op_prepare(&sn_op_layer_norm, &f, 2);
    op_run(&sn_op_layer_norm, &f);
    c.in[0] = op_tensor(form, sn_shape_of(rows, columns), 3, 1);
    c.in[1] = f.in[0];
    c.in[2] = f.in[1];
    c.in[3] = f.out[1];
    c.in[4] = f.out[2];
    op_free_tensor(&f.out[0]);
    op_prepare(&sn_op_layer_norm_grad, &c, 5);
    return c;
}

static void gradient_same_bits(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) for (int wanted = 0; wanted < 4; wanted++) {
        sn_call c = grad_call(test_forms[a], test_shapes[s][0], test_shapes[s][1], wanted & 1, wanted >> 1);
        assert_int_equal(c.out[1].shape.rank, wanted & 1);
        assert_int_equal(c.out[2].shape.rank, wanted >> 1);
        op_same_bits(&sn_op_layer_norm_grad, &c);
        op_in_place(&sn_op_layer_norm_grad, &c);
        op_free_call(&c);
    }
    sn_call c = grad_call(SN_F32, 1500, 9, true, true); /* chunks of more than the fewest rows */
    op_same_bits(&sn_op_layer_norm_grad, &c);
    op_free_call(&c);
}

static double loss(const double *x, const double *w, const double *b, const double *dy, int64_t rows, int64_t columns) {
    double y[64], sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        row_f64(x + r * columns, w, b, columns, y);
        for (int64_t i = 0; i < columns; i++) sum += y[i] * dy[r * columns + i];
    }
    return sum;
}

static void finite_differences(void **state) {
    (void)state;
    enum { ROWS = 19, COLUMNS = 37, ALL = ROWS * COLUMNS };
    sn_call c = grad_call(SN_F32, ROWS, COLUMNS, true, true);
    op_run(&sn_op_layer_norm_grad, &c);
    double *dy = wide(&c.in[0]), *x = wide(&c.in[1]), *w = wide(&c.in[2]), b[COLUMNS] = {0};
    for (int64_t i = 0; i < ALL + 2 * COLUMNS; i++) {
        double *at = i < ALL ? &x[i] : i < ALL + COLUMNS ? &w[i - ALL] : &b[i - ALL - COLUMNS], kept = *at, h = 1e-5;
        *at = kept + h;
        double up = loss(x, w, b, dy, ROWS, COLUMNS);
        *at = kept - h;
        double slope = (up - loss(x, w, b, dy, ROWS, COLUMNS)) / (2 * h);
        *at = kept;
        double found = i < ALL             ? op_get(&c.out[0], i)
                       : i < ALL + COLUMNS ? op_get(&c.out[1], i - ALL)
                                           : op_get(&c.out[2], i - ALL - COLUMNS);
        assert_true(fabs(found - slope) < 1e-5 * (1 + fabs(slope)));
    }
    sn_free(dy);
    sn_free(x);
    sn_free(w);
    op_free_call(&c);
}

static void golden(void **state) {
    (void)state;
    const sn_shape shape = sn_shape_of(TEST_ROWS, TEST_COLUMNS);
    sn_call f = {.attrs = {.f = {[SN_LAYER_NORM_EPS] = EPS}}};
    sn_call c = {.attrs = {.i = {[SN_LAYER_NORM_GRAD_WANT_DW] = 1, [SN_LAYER_NORM_GRAD_WANT_DB] = 1}}};
    f.in[0] = test_fractions(shape, 7, 3, 101, 32);
    f.in[1] = test_fractions(sn_shape_of(TEST_COLUMNS), 5, 1, 31, 16);
    f.in[2] = test_fractions(sn_shape_of(TEST_COLUMNS), 3, 2, 29, 32);
    op_prepare(&sn_op_layer_norm, &f, 3);
    op_run(&sn_op_layer_norm, &f);
    test_is_golden(&f.out[0], "layer_norm.y", 5e-7);
    c.in[0] = test_fractions(shape, 11, 5, 89, 64);
    c.in[1] = f.in[0];
    c.in[2] = f.in[1];
    c.in[3] = f.out[1];
    c.in[4] = f.out[2];
    op_prepare(&sn_op_layer_norm_grad, &c, 5);
    op_run(&sn_op_layer_norm_grad, &c);
    test_is_golden(&c.out[0], "layer_norm.dx", 5e-7);
    test_is_golden(&c.out[1], "layer_norm.dw", 1e-6);
    test_is_golden(&c.out[2], "layer_norm.db", 1e-6);
    op_free_tensor(&f.in[2]);
    op_free_tensor(&f.out[0]);
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)},
                        {.dtype = SN_F32, .shape = sn_shape_of(3)},
                        {.dtype = SN_F32, .shape = sn_shape_of(2)}}};
    op_refused(&sn_op_layer_norm, &c, 3, "b must be [3], found [2]");
    sn_call d = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 4)}, {.dtype = SN_F32, .shape = sn_shape_of(2, 3)}}};
    op_refused(&sn_op_layer_norm_grad, &d, 5, "dy must be [2,3], found [2,4]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward),
                                       cmocka_unit_test(far_from_zero),
                                       cmocka_unit_test(gradient_same_bits),
                                       cmocka_unit_test(finite_differences),
                                       cmocka_unit_test(golden),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
