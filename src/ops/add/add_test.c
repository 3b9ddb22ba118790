#include "support/small_ops.h"

#include "base/mem.h"
#include "ops/add/add.h"

extern const sn_op sn_op_add;

static void every_form_and_shape(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) {
        const sn_shape shape = sn_shape_of(test_shapes[s][0], test_shapes[s][1]);
        sn_call c = {.attrs = {.f = {[SN_ADD_ALPHA] = -0.5}}};
        c.in[0] = op_tensor(test_forms[a], shape, 1, 2);
        c.in[1] = op_tensor(test_forms[b], shape, 2, 2);
        op_prepare(&sn_op_add, &c, 2);
        assert_int_equal(c.out[0].dtype, test_forms[a]);
        op_same_bits(&sn_op_add, &c);
        const int64_t n = sn_elements(&c.in[0]);
        double *want = sn_alloc((size_t)n * sizeof *want + 1);
        for (int64_t i = 0; i < n; i++) want[i] = op_get(&c.in[0], i) - 0.5 * op_get(&c.in[1], i);
        assert_true(op_tensor_error(&c.out[0], want) <= op_tolerance(test_forms[a]));
        sn_free(want);
        op_in_place(&sn_op_add, &c);
        op_free_call(&c);
    }
}

static void many_tasks(void **state) { /* more elements than one task takes, and any rank */
    (void)state;
    sn_call c = {.attrs = {.f = {[SN_ADD_ALPHA] = 1}}};
    c.in[0] = op_tensor(SN_F32, sn_shape_of(3, 7, 11, 13, 17), 1, 1);
    c.in[1] = op_tensor(SN_BF16, sn_shape_of(3, 7, 11, 13, 17), 2, 1);
    op_prepare(&sn_op_add, &c, 2);
    op_same_bits(&sn_op_add, &c);
    assert_string_equal(sn_op_add.axes(&c), "abcde,abcde->abcde");
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}, {.dtype = SN_F32, .shape = sn_shape_of(3, 2)}}};
    op_refused(&sn_op_add, &c, 2, "b must be [2,3], found [3,2]");
    c.in[1] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(2, 3)};
    op_refused(&sn_op_add, &c, 2, "found i32");
    op_refused(&sn_op_add, &c, 1, "b is missing");
    c.in[0].shape.d[0] = -1;
    op_refused(&sn_op_add, &c, 2, "negative");
    c.in[0].shape = sn_shape_of(INT64_C(1) << 62, 4);
    op_refused(&sn_op_add, &c, 2, "no valid size");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_and_shape), cmocka_unit_test(many_tasks), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
