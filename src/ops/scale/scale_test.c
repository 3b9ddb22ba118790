#include "support/small_ops.h"

#include "base/mem.h"
#include "ops/scale/scale.h"

extern const sn_op sn_op_scale;

static void every_form_and_shape(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) {
        sn_call c = {.attrs = {.f = {[SN_SCALE_ALPHA] = 0.3}}};
        c.in[0] = test_tensor(test_forms[a], sn_shape_of(test_shapes[s][0], test_shapes[s][1]), 1, 2);
        test_prepare(&sn_op_scale, &c, 1);
        test_same_bits(&sn_op_scale, &c);
        const int64_t n = sn_elements(&c.in[0]);
        double *want = sn_alloc((size_t)n * sizeof *want + 1);
        for (int64_t i = 0; i < n; i++) want[i] = 0.3 * test_get(&c.in[0], i);
        assert_true(test_tensor_error(&c.out[0], want) <= test_tolerance(test_forms[a]));
        sn_free(want);
        test_in_place(&sn_op_scale, &c);
        test_free_call(&c);
    }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_Q4_1, .shape = sn_shape_of(2, 32)}}};
    test_refused(&sn_op_scale, &c, 1, "found q4_1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_and_shape), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
