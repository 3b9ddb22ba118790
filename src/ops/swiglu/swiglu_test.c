#include "support/small_ops.h"

#include <math.h>

#include "base/mem.h"
#include "ops/swiglu/swiglu.h"

extern const sn_op sn_op_swiglu, sn_op_swiglu_grad;

static double swiglu_f64(double gate, double up) { return gate / (1 + exp(-gate)) * up; }

static void forward(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) {
        const sn_shape shape = sn_shape_of(test_shapes[s][0], test_shapes[s][1]);
        sn_call c = {0};
        c.in[0] = op_tensor(test_forms[a], shape, 1, 12);
        c.in[1] = op_tensor(test_forms[b], shape, 2, 2);
        op_prepare(&sn_op_swiglu, &c, 2);
        op_same_bits(&sn_op_swiglu, &c);
        const int64_t n = sn_elements(&c.in[0]);
        double *want = sn_alloc((size_t)(n + 1) * sizeof *want);
        for (int64_t i = 0; i < n; i++) want[i] = swiglu_f64(op_get(&c.in[0], i), op_get(&c.in[1], i));
        assert_true(op_tensor_error(&c.out[0], want) <= op_tolerance(test_forms[a]));
        sn_free(want);
        op_in_place(&sn_op_swiglu, &c);
        op_free_call(&c);
    }
}

/* The derivatives of swiglu_f64 by central differences. */
static void gradient(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) {
        const sn_shape shape = sn_shape_of(test_shapes[s][0], test_shapes[s][1]);
        sn_call c = {0};
        c.in[0] = op_tensor(test_forms[b], shape, 3, 1);
        c.in[1] = op_tensor(test_forms[a], shape, 1, 12);
        c.in[2] = op_tensor(test_forms[b], shape, 2, 2);
        op_prepare(&sn_op_swiglu_grad, &c, 3);
        assert_int_equal(c.out[0].dtype, test_forms[a]);
        assert_int_equal(c.out[1].dtype, test_forms[b]);
        op_same_bits(&sn_op_swiglu_grad, &c);
        const double h = 1e-5;
        for (int64_t i = 0; i < sn_elements(&c.in[0]); i++) {
            const double dy = op_get(&c.in[0], i), gate = op_get(&c.in[1], i), up = op_get(&c.in[2], i);
            const double dgate = dy * (swiglu_f64(gate + h, up) - swiglu_f64(gate - h, up)) / (2 * h);
            const double dup = dy * (swiglu_f64(gate, up + h) - swiglu_f64(gate, up - h)) / (2 * h);
            assert_true(fabs(op_get(&c.out[0], i) - dgate) <= op_tolerance(test_forms[a]) * (1 + fabs(dgate)));
            assert_true(fabs(op_get(&c.out[1], i) - dup) <= op_tolerance(test_forms[b]) * (1 + fabs(dup)));
        }
        op_in_place(&sn_op_swiglu_grad, &c);
        op_free_call(&c);
    }
}

static void both_in_place(void **state) { /* dgate on the bytes of up and dup on those of gate */
    (void)state;
    const sn_shape shape = sn_shape_of(3, 1061);
    sn_call c = {0}, want;
    for (int i = 0; i < 3; i++) c.in[i] = op_tensor(SN_F32, shape, (uint32_t)i, 2);
    op_prepare(&sn_op_swiglu_grad, &c, 3);
    op_run(&sn_op_swiglu_grad, &c);
    want = c;
    c.out[0].data = c.in[2].data;
    c.out[1].data = c.in[1].data;
    op_run(&sn_op_swiglu_grad, &c);
    assert_memory_equal(c.out[0].data, want.out[0].data, sn_tensor_bytes(&c.out[0]));
    assert_memory_equal(c.out[1].data, want.out[1].data, sn_tensor_bytes(&c.out[1]));
    op_free_call(&want);
}

static void extremes(void **state) {
    (void)state;
    sn_call c = {0};
    c.in[0] = op_tensor_of(SN_F32, sn_shape_of(6), (float[]){1e4f, -1e4f, 90, -90, NAN, 0});
    c.in[1] = op_tensor_of(SN_F32, sn_shape_of(6), (float[]){1, 1, 1, 1, 1, 1});
    op_prepare(&sn_op_swiglu, &c, 2);
    op_same_bits(&sn_op_swiglu, &c);
    assert_true(op_get(&c.out[0], 0) == 1e4);
    assert_true(op_get(&c.out[0], 1) == 0);
    assert_true(op_get(&c.out[0], 2) == 90);
    assert_true(fabs(op_get(&c.out[0], 3)) < 1e-30);
    assert_true(isnan(op_get(&c.out[0], 4)));
    assert_true(op_get(&c.out[0], 5) == 0);
    op_free_call(&c);
}

static void golden(void **state) {
    (void)state;
    const sn_shape shape = sn_shape_of(TEST_ROWS, TEST_COLUMNS);
    sn_call f = {0}, c = {0};
    f.in[0] = test_fractions(shape, 7, 3, 101, 32);
    f.in[1] = test_fractions(shape, 13, 4, 97, 48);
    op_prepare(&sn_op_swiglu, &f, 2);
    op_run(&sn_op_swiglu, &f);
    test_is_golden(&f.out[0], "swiglu.y", 3e-7);
    c.in[0] = test_fractions(shape, 11, 5, 89, 64);
    c.in[1] = f.in[0];
    c.in[2] = f.in[1];
    op_prepare(&sn_op_swiglu_grad, &c, 3);
    op_run(&sn_op_swiglu_grad, &c);
    test_is_golden(&c.out[0], "swiglu.dgate", 3e-7);
    test_is_golden(&c.out[1], "swiglu.dup", 3e-7);
    op_free_tensor(&f.out[0]);
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}, {.dtype = SN_F32, .shape = sn_shape_of(2, 4)}}};
    op_refused(&sn_op_swiglu, &c, 2, "up must be [2,3], found [2,4]");
    c.in[2] = c.in[1];
    op_refused(&sn_op_swiglu_grad, &c, 3, "dy must be [2,4], found [2,3]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward),  cmocka_unit_test(gradient), cmocka_unit_test(both_in_place),
                                       cmocka_unit_test(extremes), cmocka_unit_test(golden),   cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
