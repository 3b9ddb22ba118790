#include "ops/sum_units/sum_units.h"

#include "support/small_ops.h"

extern const sn_op sn_op_sum_units;

static void in_index_order(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 5, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        sn_call c = {.attrs = {.i = {[SN_SUM_UNITS_SLOT] = 1}}};
        c.in[1] = op_tensor(SN_F64, sn_shape_of(3), 0, 0);
        c.in[0] = op_tensor(SN_F64, sn_shape_of(sizes[s]), 0, 0);
        double want = 0;
        for (int i = 0; i < 3; i++) op_set(&c.in[1], i, -1);
        for (int64_t u = 0; u < sizes[s]; u++) {
            op_set(&c.in[0], u, 1.0 / (double)(u + 3));
            want += 1.0 / (double)(u + 3);
        }
        op_prepare(&sn_op_sum_units, &c, 2);
        op_run(&sn_op_sum_units, &c);
        assert_true(op_get(&c.in[1], 1) == want);
        assert_true(op_get(&c.in[1], 0) == -1 && op_get(&c.in[1], 2) == -1);
        op_free_call(&c);
    }
}

/* Without norms the sum itself comes out. */
static void as_a_result(void **state) {
    (void)state;
    sn_call c = {0};
    double want = 0;
    c.in[0] = op_tensor(SN_F64, sn_shape_of(7), 0, 0);
    for (int64_t u = 0; u < 7; u++) {
        op_set(&c.in[0], u, 1.0 / (double)(u + 3));
        want += 1.0 / (double)(u + 3);
    }
    op_prepare(&sn_op_sum_units, &c, 1);
    assert_true(c.out[0].shape.rank == 1 && c.out[0].shape.d[0] == 1);
    op_run(&sn_op_sum_units, &c);
    assert_true(op_get(&c.out[0], 0) == want);
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F64, .shape = sn_shape_of(4)}, {.dtype = SN_F64, .shape = sn_shape_of(3)}}};
    c.attrs.i[SN_SUM_UNITS_SLOT] = 3;
    op_refused(&sn_op_sum_units, &c, 2, "slot must be below 3, found 3");
    c.in[1].dtype = SN_F32;
    op_refused(&sn_op_sum_units, &c, 2, "norms must be f64, found f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_index_order), cmocka_unit_test(as_a_result), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
