#include "support/small_ops.h"

#include <math.h>

#include "ops/sum_squares/sum_squares.h"

extern const sn_op sn_op_sum_squares;

static sn_call call(sn_dtype form, int64_t n) {
    sn_call c = {0};
    c.in[0] = op_tensor(form, sn_shape_of(n), 1, 3);
    op_prepare(&sn_op_sum_squares, &c, 1);
    return c;
}

static double total(const sn_call *c) {
    double sum = 0;
    for (int64_t u = 0; u < sn_elements(&c->out[0]); u++) sum += op_get(&c->out[0], u);
    return sum;
}

static void every_form_and_size(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 31, 33, 4095, 4096, 4097, 100003};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) TEST_EACH_FORM(a) {
            sn_call c = call(test_forms[a], sizes[s]);
            op_same_bits(&sn_op_sum_squares, &c);
            double want = 0;
            for (int64_t i = 0; i < sizes[s]; i++) want += op_get(&c.in[0], i) * op_get(&c.in[0], i);
            assert_int_equal(sn_elements(&c.out[0]), (sizes[s] + SN_SUM_SQUARES_UNIT - 1) / SN_SUM_SQUARES_UNIT);
            assert_true(fabs(total(&c) - want) <= 1e-12 * (1 + want));
            op_free_call(&c);
        }
}

static void by_units(void **state) { /* a unit does not depend on what stands beside it: a shard's units keep their bits */
    (void)state;
    sn_call whole = call(SN_F32, 3 * SN_SUM_SQUARES_UNIT), unit = call(SN_F32, SN_SUM_SQUARES_UNIT);
    op_run(&sn_op_sum_squares, &whole);
    for (int u = 0; u < 3; u++) {
        for (int64_t i = 0; i < SN_SUM_SQUARES_UNIT; i++) op_set(&unit.in[0], i, op_get(&whole.in[0], u * SN_SUM_SQUARES_UNIT + i));
        op_run(&sn_op_sum_squares, &unit);
        assert_true(op_get(&unit.out[0], 0) == op_get(&whole.out[0], u));
    }
    op_free_call(&whole);
    op_free_call(&unit);
}

static void keeps_infinity(void **state) {
    (void)state;
    sn_call c = call(SN_F16, 100);
    op_set(&c.in[0], 50, INFINITY);
    op_same_bits(&sn_op_sum_squares, &c);
    assert_true(isinf(op_get(&c.out[0], 0)));
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_I32, .shape = sn_shape_of(4)}}};
    op_refused(&sn_op_sum_squares, &c, 1, "found i32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_and_size), cmocka_unit_test(by_units), cmocka_unit_test(keeps_infinity),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
