#include "support/small_ops.h"

#include "base/mem.h"
#include "ops/accumulate/accumulate.h"

extern const sn_op sn_op_accumulate;

static void every_form_and_shape(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) {
        const sn_shape shape = sn_shape_of(test_shapes[s][0], test_shapes[s][1]);
        sn_call c = {0};
        c.in[0] = op_tensor(test_forms[a], shape, 1, 2);
        c.in[1] = op_tensor(test_forms[b], shape, 2, 2);
        op_prepare(&sn_op_accumulate, &c, 2);
        const int64_t n = sn_elements(&c.in[0]);
        double *want = sn_alloc((size_t)n * sizeof *want + 1);
        for (int64_t i = 0; i < n; i++) want[i] = op_get(&c.in[0], i) + op_get(&c.in[1], i);
        op_same_bits(&sn_op_accumulate, &c);
        assert_true(op_tensor_error(&c.in[0], want) <= op_tolerance(test_forms[a]));
        sn_free(want);
        op_free_call(&c);
    }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(6)}, {.dtype = SN_F32, .shape = sn_shape_of(3, 2)}}};
    op_refused(&sn_op_accumulate, &c, 2, "x must be [6], found [3,2]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_and_shape), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
