#include "support/small_ops.h"

#include "base/mem.h"
#include "ops/sum_rows/sum_rows.h"

extern const sn_op sn_op_sum_rows;

static void every_form_and_shape(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) {
        const int64_t rows = test_shapes[s][0], columns = test_shapes[s][1];
        sn_call c = {.attrs = {.i = {[SN_SUM_ROWS_DTYPE] = test_forms[b]}}};
        c.in[0] = op_tensor(test_forms[a], sn_shape_of(rows, columns), 1, 2);
        op_prepare(&sn_op_sum_rows, &c, 1);
        op_same_bits(&sn_op_sum_rows, &c);
        double *want = sn_alloc_zero((size_t)columns + 1, sizeof *want);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < columns; i++) want[i] += op_get(&c.in[0], r * columns + i);
        assert_true(op_tensor_error(&c.out[0], want) <= op_tolerance(test_forms[b]) + 1e-5);
        sn_free(want);
        op_free_call(&c);
    }
}

static void in_index_order(void **state) { /* 2^24 + 1 + 1 is 2^24 in f32 when added in this order */
    (void)state;
    sn_call c = {0};
    c.in[0] = op_tensor_of(SN_F32, sn_shape_of(3, 1), (float[]){0x1p24f, 1, 1});
    op_prepare(&sn_op_sum_rows, &c, 1);
    op_same_bits(&sn_op_sum_rows, &c);
    assert_true(op_get(&c.out[0], 0) == 0x1p24);
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(6)}}};
    op_refused(&sn_op_sum_rows, &c, 1, "2 dimensions, found [6]");
    c.in[0].shape = sn_shape_of(2, 3);
    c.attrs.i[SN_SUM_ROWS_DTYPE] = SN_I32;
    op_refused(&sn_op_sum_rows, &c, 1, "found i32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_and_shape), cmocka_unit_test(in_index_order), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
