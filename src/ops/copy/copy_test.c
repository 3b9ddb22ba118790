#include "support/small_ops.h"

#include "ops/copy/copy.h"
#include "program/program.h"

extern const sn_op sn_op_copy;

static void every_size(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 65536, 65537, 300007};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        sn_call c = {.attrs = {.i = {[SN_COPY_TIER] = SN_TIER_HOST}}};
        c.in[0] = op_tensor(SN_F32, sn_shape_of(sizes[s]), 1, 2);
        op_prepare(&sn_op_copy, &c, 1);
        op_same_bits(&sn_op_copy, &c);
        assert_memory_equal(c.out[0].data, c.in[0].data, sn_tensor_bytes(&c.in[0]));
        op_free_call(&c);
    }
    sn_call c = {0};
    c.in[0] = op_tensor(SN_Q4_1, sn_shape_of(3, 64), 0, 0);
    for (size_t i = 0; i < sn_tensor_bytes(&c.in[0]); i++) ((uint8_t *)c.in[0].data)[i] = (uint8_t)i;
    op_prepare(&sn_op_copy, &c, 1);
    op_same_bits(&sn_op_copy, &c);
    assert_memory_equal(c.out[0].data, c.in[0].data, 120);
    op_free_call(&c);
}

static void into_a_value(void **state) {
    (void)state;
    sn_call c = {0};
    c.in[0] = op_tensor(SN_F32, sn_shape_of(3, 7), 1, 2);
    c.in[1] = op_tensor(SN_F32, sn_shape_of(3, 7), 2, 2);
    op_prepare(&sn_op_copy, &c, 2);
    assert_int_equal(c.out[0].shape.rank, 0);
    op_same_bits(&sn_op_copy, &c);
    assert_memory_equal(c.in[1].data, c.in[0].data, 3 * 7 * 4);
    c.in[1].shape = sn_shape_of(7, 3);
    op_refused(&sn_op_copy, &c, 2, "into");
    c.in[1] = (sn_tensor){.data = c.in[1].data, .dtype = SN_F16, .shape = sn_shape_of(3, 7)};
    op_refused(&sn_op_copy, &c, 2, "into");
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}}};
    c.attrs.i[SN_COPY_TIER] = 9;
    op_refused(&sn_op_copy, &c, 1, "no tier 9");
    c.in[0] = (sn_tensor){.dtype = SN_Q4_1, .shape = sn_shape_of(2, 33)};
    op_refused(&sn_op_copy, &c, 1, "no valid size");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_size), cmocka_unit_test(into_a_value), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
