#include "support/small_ops.h"

#include <math.h>

#include "base/mem.h"
#include "ops/scale/scale.h"

extern const sn_op sn_op_scale;

static void every_form_and_shape(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) {
        sn_call c = {.attrs = {.f = {[SN_SCALE_ALPHA] = 0.3}}};
        c.in[0] = op_tensor(test_forms[a], sn_shape_of(test_shapes[s][0], test_shapes[s][1]), 1, 2);
        op_prepare(&sn_op_scale, &c, 1);
        op_same_bits(&sn_op_scale, &c);
        const int64_t n = sn_elements(&c.in[0]);
        double *want = sn_alloc((size_t)n * sizeof *want + 1);
        for (int64_t i = 0; i < n; i++) want[i] = 0.3 * op_get(&c.in[0], i);
        assert_true(op_tensor_error(&c.out[0], want) <= op_tolerance(test_forms[a]));
        sn_free(want);
        op_in_place(&sn_op_scale, &c);
        op_free_call(&c);
    }
}

static void every_16_bit_pattern(void **state) { /* NaNs, infinities and subnormal numbers widen and round alike in every variant */
    (void)state;
    const double alphas[] = {1, 0.3, -3};
    for (int form = 1; form < 3; form++)
        for (int k = 0; k < 3; k++) {
            sn_call c = {.attrs = {.f = {[SN_SCALE_ALPHA] = alphas[k]}}};
            c.in[0] = op_tensor(test_forms[form], sn_shape_of(65536), 0, 0);
            for (int i = 0; i < 65536; i++) ((uint16_t *)c.in[0].data)[i] = (uint16_t)i;
            op_prepare(&sn_op_scale, &c, 1);
            op_same_bits(&sn_op_scale, &c);
            for (int i = 0; i < 65536; i++) assert_int_equal(isnan(op_get(&c.out[0], i)), isnan(op_get(&c.in[0], i)));
            op_free_call(&c);
        }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_Q4_1, .shape = sn_shape_of(2, 32)}}};
    op_refused(&sn_op_scale, &c, 1, "found q4_1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_and_shape), cmocka_unit_test(every_16_bit_pattern),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
