#include "support/small_ops.h"

#include <math.h>

#include "base/mem.h"
#include "ops/rms_norm/rms_norm.h"

extern const sn_op sn_op_rms_norm, sn_op_rms_norm_grad;

#define EPS 1e-5

/* y of one row in f64; returns rstd. */
static double row_f64(const double *x, const double *w, int64_t n, double *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    double rstd = 1 / sqrt(sum / (double)n + EPS);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * rstd * w[i];
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
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) {
        const int64_t rows = test_shapes[s][0], columns = test_shapes[s][1];
        sn_call c = {.attrs = {.f = {[SN_RMS_NORM_EPS] = EPS}}};
        c.in[0] = op_tensor(test_forms[a], sn_shape_of(rows, columns), 1, 3);
        c.in[1] = op_tensor(test_forms[b], sn_shape_of(columns), 2, 2);
        op_prepare(&sn_op_rms_norm, &c, 2);
        op_same_bits(&sn_op_rms_norm, &c);
        double *x = wide(&c.in[0]), *w = wide(&c.in[1]), *y = sn_alloc((size_t)(rows * columns + 1) * sizeof *y);
        for (int64_t r = 0; columns && r < rows; r++) {
            double rstd = row_f64(x + r * columns, w, columns, y + r * columns);
            assert_true(fabs(op_get(&c.out[1], r) / rstd - 1) < 1e-6);
        }
        assert_true(op_tensor_error(&c.out[0], y) <= op_tolerance(test_forms[a]));
        sn_free(x);
        sn_free(w);
        sn_free(y);
        op_in_place(&sn_op_rms_norm, &c);
        op_free_call(&c);
    }
}

static sn_call grad_call(sn_dtype form, int64_t rows, int64_t columns, bool want_dw) {
    sn_call f = {.attrs = {.f = {[SN_RMS_NORM_EPS] = EPS}}}, c = {.attrs = {.i = {[SN_RMS_NORM_GRAD_WANT_DW] = want_dw}}};
    f.in[0] = op_tensor(form, sn_shape_of(rows, columns), 1, 3);
    f.in[1] = op_tensor(SN_F32, sn_shape_of(columns), 2, 2);
    op_prepare(&sn_op_rms_norm, &f, 2);
    op_run(&sn_op_rms_norm, &f);
    c.in[0] = op_tensor(form, sn_shape_of(rows, columns), 3, 1);
    c.in[1] = f.in[0];
    c.in[2] = f.in[1];
    c.in[3] = f.out[1];
    op_free_tensor(&f.out[0]);
    op_prepare(&sn_op_rms_norm_grad, &c, 4);
    return c;
}

static void gradient_same_bits(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) for (int want_dw = 0; want_dw <= 1; want_dw++) {
        sn_call c = grad_call(test_forms[a], test_shapes[s][0], test_shapes[s][1], want_dw);
        assert_int_equal(c.out[1].shape.rank, want_dw);
        op_same_bits(&sn_op_rms_norm_grad, &c);
        op_in_place(&sn_op_rms_norm_grad, &c);
        for (int64_t i = 0; want_dw && !test_shapes[s][0] && i < test_shapes[s][1]; i++) assert_true(op_get(&c.out[1], i) == 0);
        op_free_call(&c);
    }
    sn_call c = grad_call(SN_F32, 1500, 9, true); /* chunks of more than the fewest rows */
    op_same_bits(&sn_op_rms_norm_grad, &c);
    op_free_call(&c);
}

static double loss(const double *x, const double *w, const double *dy, int64_t rows, int64_t columns) {
    double y[64], sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        row_f64(x + r * columns, w, columns, y);
        for (int64_t i = 0; i < columns; i++) sum += y[i] * dy[r * columns + i];
    }
    return sum;
}

static void finite_differences(void **state) {
    (void)state;
    const int64_t rows = 19, columns = 37;
    sn_call c = grad_call(SN_F32, rows, columns, true);
    op_run(&sn_op_rms_norm_grad, &c);
    double *dy = wide(&c.in[0]), *x = wide(&c.in[1]), *w = wide(&c.in[2]);
    for (int64_t i = 0; i < rows * columns + columns; i++) {
        double *at = i < rows * columns ? &x[i] : &w[i - rows * columns], kept = *at, h = 1e-5;
        *at = kept + h;
        double up = loss(x, w, dy, rows, columns);
        *at = kept - h;
        double slope = (up - loss(x, w, dy, rows, columns)) / (2 * h);
        *at = kept;
        double found = i < rows * columns ? op_get(&c.out[0], i) : op_get(&c.out[1], i - rows * columns);
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
    sn_call f = {.attrs = {.f = {[SN_RMS_NORM_EPS] = EPS}}}, c = {.attrs = {.i = {[SN_RMS_NORM_GRAD_WANT_DW] = 1}}};
    f.in[0] = test_fractions(shape, 7, 3, 101, 32);
    f.in[1] = test_fractions(sn_shape_of(TEST_COLUMNS), 5, 1, 31, 16);
    op_prepare(&sn_op_rms_norm, &f, 2);
    op_run(&sn_op_rms_norm, &f);
    test_is_golden(&f.out[0], "rms_norm.y", 5e-7);
    c.in[0] = test_fractions(shape, 11, 5, 89, 64);
    c.in[1] = f.in[0];
    c.in[2] = f.in[1];
    c.in[3] = f.out[1];
    op_prepare(&sn_op_rms_norm_grad, &c, 4);
    op_run(&sn_op_rms_norm_grad, &c);
    test_is_golden(&c.out[0], "rms_norm.dx", 5e-7);
    test_is_golden(&c.out[1], "rms_norm.dw", 1e-6);
    op_free_tensor(&f.out[0]);
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}, {.dtype = SN_F32, .shape = sn_shape_of(2)}}};
    op_refused(&sn_op_rms_norm, &c, 2, "w must be [3], found [2]");
    sn_call d = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)},
                        {.dtype = SN_F32, .shape = sn_shape_of(2, 3)},
                        {.dtype = SN_F32, .shape = sn_shape_of(3)},
                        {.dtype = SN_BF16, .shape = sn_shape_of(2)}}};
    op_refused(&sn_op_rms_norm_grad, &d, 4, "rstd must be f32, found bf16");
    d.in[3] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(3)};
    op_refused(&sn_op_rms_norm_grad, &d, 4, "rstd must be [2], found [3]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward), cmocka_unit_test(gradient_same_bits),
                                       cmocka_unit_test(finite_differences), cmocka_unit_test(golden), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
