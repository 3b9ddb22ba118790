#include "support/small_ops.h"

#include <math.h>

#include "ops/sum_squares/sum_squares.h"

extern const sn_op sn_op_sum_squares;

static sn_call call(sn_dtype form, int64_t n) {
    sn_call c = {.attrs = {.i = {[SN_SUM_SQUARES_SLOT] = 1}}};
    c.in[0] = op_tensor(SN_F64, sn_shape_of(3), 0, 0);
    for (int i = 0; i < 3; i++) op_set(&c.in[0], i, -1);
    c.in[1] = op_tensor(form, sn_shape_of(n), 1, 3);
    op_prepare(&sn_op_sum_squares, &c, 2);
    return c;
}

static void every_form_and_size(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 31, 33, 4095, 4096, 4097, 100003};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) TEST_EACH_FORM(a) {
            sn_call c = call(test_forms[a], sizes[s]);
            op_same_bits(&sn_op_sum_squares, &c);
            double want = 0;
            for (int64_t i = 0; i < sizes[s]; i++) want += op_get(&c.in[1], i) * op_get(&c.in[1], i);
            assert_true(fabs(op_get(&c.in[0], 1) - want) <= 1e-12 * (1 + want));
            assert_true(op_get(&c.in[0], 0) == -1 && op_get(&c.in[0], 2) == -1);
            op_free_call(&c);
        }
}

static void by_units(void **state) { /* the sum of whole units does not depend on what follows them: a shard's units keep their bits */
    (void)state;
    sn_call whole = call(SN_F32, 3 * SN_SUM_SQUARES_UNIT), unit = call(SN_F32, SN_SUM_SQUARES_UNIT);
    op_run(&sn_op_sum_squares, &whole);
    double sum = 0;
    for (int u = 0; u < 3; u++) {
        for (int64_t i = 0; i < SN_SUM_SQUARES_UNIT; i++) op_set(&unit.in[1], i, op_get(&whole.in[1], u * SN_SUM_SQUARES_UNIT + i));
        op_run(&sn_op_sum_squares, &unit);
        sum += op_get(&unit.in[0], 1);
    }
    assert_true(sum == op_get(&whole.in[0], 1));
    op_free_call(&whole);
    op_free_call(&unit);
}

static void keeps_infinity(void **state) {
    (void)state;
    sn_call c = call(SN_F16, 100);
    op_set(&c.in[1], 50, INFINITY);
    op_same_bits(&sn_op_sum_squares, &c);
    assert_true(isinf(op_get(&c.in[0], 1)));
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F64, .shape = sn_shape_of(3)}, {.dtype = SN_F32, .shape = sn_shape_of(4)}}};
    c.attrs.i[SN_SUM_SQUARES_SLOT] = 3;
    op_refused(&sn_op_sum_squares, &c, 2, "slot must be below 3, found 3");
    c.in[0].dtype = SN_F32;
    op_refused(&sn_op_sum_squares, &c, 2, "norms must be f64, found f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_and_size), cmocka_unit_test(by_units), cmocka_unit_test(keeps_infinity),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
