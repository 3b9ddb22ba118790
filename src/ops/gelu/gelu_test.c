#include "support/small_ops.h"

#include <math.h>

#include "base/mem.h"
#include "ops/gelu/gelu.h"

extern const sn_op sn_op_gelu, sn_op_gelu_grad;

static double gelu_f64(double x, int exact) {
    if (exact) return 0.5 * x * (1 + erf(x / sqrt(2)));
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void forward_and_gradient(void **state) {
    (void)state;
    for (int exact = 0; exact <= 1; exact++) TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) {
            const sn_shape shape = sn_shape_of(test_shapes[s][0], test_shapes[s][1]);
            sn_call f = {.attrs = {.i = {[SN_GELU_EXACT] = exact}}}, c = f;
            f.in[0] = op_tensor(test_forms[a], shape, 1, 6);
            op_prepare(&sn_op_gelu, &f, 1);
            op_same_bits(&sn_op_gelu, &f);
            c.in[0] = op_tensor(test_forms[a], shape, 2, 2);
            c.in[1] = f.in[0];
            op_prepare(&sn_op_gelu_grad, &c, 2);
            op_same_bits(&sn_op_gelu_grad, &c);
            const double h = 1e-5, tolerance = op_tolerance(test_forms[a]);
            for (int64_t i = 0; i < sn_elements(&f.in[0]); i++) {
                const double x = op_get(&f.in[0], i), y = gelu_f64(x, exact);
                const double slope = op_get(&c.in[0], i) * (gelu_f64(x + h, exact) - gelu_f64(x - h, exact)) / (2 * h);
                assert_true(fabs(op_get(&f.out[0], i) - y) <= tolerance * (1 + fabs(y)));
                assert_true(fabs(op_get(&c.out[0], i) - slope) <= tolerance * (1 + fabs(slope)));
            }
            op_in_place(&sn_op_gelu, &f);
            op_in_place(&sn_op_gelu_grad, &c);
            op_free_tensor(&f.out[0]);
            op_free_call(&c);
        }
}

static void extremes(void **state) {
    (void)state;
    for (int exact = 0; exact <= 1; exact++) {
        sn_call c = {.attrs = {.i = {[SN_GELU_EXACT] = exact}}};
        c.in[0] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){1e4f, -1e4f, NAN, 0});
        op_prepare(&sn_op_gelu, &c, 1);
        op_same_bits(&sn_op_gelu, &c);
        assert_true(op_get(&c.out[0], 0) == 1e4);
        assert_true(op_get(&c.out[0], 1) == 0);
        assert_true(isnan(op_get(&c.out[0], 2)));
        assert_true(op_get(&c.out[0], 3) == 0);
        op_free_call(&c);
    }
}

static void golden(void **state) {
    (void)state;
    const sn_shape shape = sn_shape_of(TEST_ROWS, TEST_COLUMNS);
    for (int exact = 0; exact <= 1; exact++) {
        sn_call f = {.attrs = {.i = {[SN_GELU_EXACT] = exact}}}, c = f;
        f.in[0] = test_fractions(shape, 7, 3, 101, 32);
        op_prepare(&sn_op_gelu, &f, 1);
        op_run(&sn_op_gelu, &f);
        test_is_golden(&f.out[0], exact ? "gelu_erf.y" : "gelu_tanh.y", 3e-7);
        c.in[0] = test_fractions(shape, 11, 5, 89, 64);
        c.in[1] = f.in[0];
        op_prepare(&sn_op_gelu_grad, &c, 2);
        op_run(&sn_op_gelu_grad, &c);
        test_is_golden(&c.out[0], exact ? "gelu_erf.dx" : "gelu_tanh.dx", 5e-7);
        op_free_tensor(&f.out[0]);
        op_free_call(&c);
    }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}, {.dtype = SN_F32, .shape = sn_shape_of(2, 4)}}};
    op_refused(&sn_op_gelu_grad, &c, 2, "dy must be [2,4], found [2,3]");
    c.in[0].dtype = SN_F64;
    op_refused(&sn_op_gelu, &c, 1, "found f64");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward_and_gradient), cmocka_unit_test(extremes), cmocka_unit_test(golden),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
