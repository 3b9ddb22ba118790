#include "support/small_ops.h"

#include "ops/select_rows/select_rows.h"

extern const sn_op sn_op_select_rows;

static void every_form(void **state) {
    (void)state;
    TEST_EACH_FORM(a) for (int64_t n = 0; n <= 40; n += 20) {
        sn_call c = {0};
        c.in[0] = op_tensor(test_forms[a], sn_shape_of(7, 33), 1, 2);
        c.in[1] = op_tensor(SN_I32, sn_shape_of(n), 0, 0);
        int32_t *rows = c.in[1].data;
        for (int64_t i = 0; i < n; i++) rows[i] = (int32_t)(i * 5 % 9) - 1; /* -1 and 7 are no rows */
        op_prepare(&sn_op_select_rows, &c, 2);
        op_same_bits(&sn_op_select_rows, &c);
        for (int64_t i = 0; i < n * 33; i++) {
            const int32_t row = rows[i / 33];
            assert_true(op_get(&c.out[0], i) == (row < 0 || row > 6 ? 0 : op_get(&c.in[0], row * 33 + i % 33)));
        }
        op_free_call(&c);
    }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}, {.dtype = SN_I32, .shape = sn_shape_of(2, 1)}}};
    op_refused(&sn_op_select_rows, &c, 2, "rows must have 1 dimensions, found [2,1]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
