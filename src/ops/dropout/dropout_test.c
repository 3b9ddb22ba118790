#include "support/small_ops.h"

#include <math.h>

#include "base/rng.h"
#include "ops/dropout/dropout.h"

extern const sn_op sn_op_dropout;

static sn_call call(sn_dtype form, int64_t rows, int64_t columns, double p, uint32_t row_base) {
    sn_call c = {.attrs = {.i = {[SN_DROPOUT_SITE] = 77}, .f = {[SN_DROPOUT_P] = p}}};
    c.in[0] = op_tensor(form, sn_shape_of(rows, columns), 1, 2);
    c.in[1] = op_tensor(SN_U32, sn_shape_of(4), 0, 0);
    const uint32_t key[4] = {11, 22, 33, row_base};
    for (int i = 0; i < 4; i++) ((uint32_t *)c.in[1].data)[i] = key[i];
    op_prepare(&sn_op_dropout, &c, 2);
    return c;
}

static void by_the_documented_key(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) {
        const int64_t rows = test_shapes[s][0], columns = test_shapes[s][1];
        sn_call c = call(test_forms[a], rows, columns, 0.25, 1000);
        op_same_bits(&sn_op_dropout, &c);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < columns; k++) {
                uint32_t word = sn_philox(11, 22, 33, 77, 1000 + (uint32_t)r, (uint32_t)(k / 4)).v[k % 4];
                double want = sn_uniform(word) < 0.25f ? 0 : op_get(&c.in[0], r * columns + k) / 0.75;
                assert_true(fabs(op_get(&c.out[0], r * columns + k) - want) <= op_tolerance(test_forms[a]) * (1 + fabs(want)));
            }
        op_in_place(&sn_op_dropout, &c);
        op_free_call(&c);
    }
}

static void nothing_and_everything(void **state) {
    (void)state;
    sn_call c = call(SN_F32, 5, 576, 0, 0);
    op_same_bits(&sn_op_dropout, &c);
    assert_memory_equal(c.in[0].data, c.out[0].data, sn_tensor_bytes(&c.in[0]));
    op_free_call(&c);
    c = call(SN_F32, 5, 576, 1, 0);
    ((float *)c.in[0].data)[7] = INFINITY;
    op_same_bits(&sn_op_dropout, &c);
    for (int64_t i = 0; i < sn_elements(&c.out[0]); i++) assert_true(op_get(&c.out[0], i) == 0);
    op_free_call(&c);
}

static void rows_keep_their_bits(void **state) { /* a shard of rows gives the bits of the whole */
    (void)state;
    sn_call whole = call(SN_F32, 37, 33, 0.5, 4), part = call(SN_F32, 7, 33, 0.5, 24);
    for (int64_t i = 0; i < 7 * 33; i++) op_set(&part.in[0], i, op_get(&whole.in[0], 20 * 33 + i));
    op_run(&sn_op_dropout, &whole);
    op_run(&sn_op_dropout, &part);
    assert_memory_equal(part.out[0].data, (float *)whole.out[0].data + 20 * 33, 7 * 33 * sizeof(float));
    op_free_call(&whole);
    op_free_call(&part);
}

static void places_say_which_rows(void **state) { /* rows in another order keep what they have in theirs */
    (void)state;
    static const int32_t places[] = {3, 4, 11, 12, 30, 36, 0};
    sn_call whole = call(SN_F32, 37, 33, 0.5, 4), part = call(SN_F32, 7, 33, 0.5, 4);
    for (int64_t i = 0; i < 7 * 33; i++) op_set(&part.in[0], i, op_get(&whole.in[0], places[i / 33] * 33 + i % 33));
    op_run(&sn_op_dropout, &whole);
    part.in[2] = op_tensor_i32(sn_shape_of(7), places);
    part.n_in = 3;
    op_same_bits(&sn_op_dropout, &part);
    for (int64_t i = 0; i < 7 * 33; i++) assert_true(op_get(&part.out[0], i) == op_get(&whole.out[0], places[i / 33] * 33 + i % 33));
    op_free_call(&whole);
    op_free_call(&part);
}

static void keeps_the_share(void **state) {
    (void)state;
    sn_call c = call(SN_F32, 100, 1000, 0.1, 0);
    for (int64_t i = 0; i < 100000; i++) op_set(&c.in[0], i, 1);
    op_run(&sn_op_dropout, &c);
    double sum = 0;
    for (int64_t i = 0; i < 100000; i++) sum += op_get(&c.out[0], i);
    assert_true(fabs(sum / 100000 - 1) < 0.005); /* five standard deviations */
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}, {.dtype = SN_U32, .shape = sn_shape_of(4)}}};
    c.attrs.f[SN_DROPOUT_P] = 1.5;
    op_refused(&sn_op_dropout, &c, 2, "found 1.5");
    c.attrs.f[SN_DROPOUT_P] = NAN;
    op_refused(&sn_op_dropout, &c, 2, "p must be between 0 and 1");
    c.in[1].dtype = SN_I32;
    op_refused(&sn_op_dropout, &c, 2, "key must be u32, found i32");
    c.in[1].shape = sn_shape_of(3);
    op_refused(&sn_op_dropout, &c, 2, "key must be [4], found [3]");
    c.in[1] = (sn_tensor){.dtype = SN_U32, .shape = sn_shape_of(4)};
    c.attrs.f[SN_DROPOUT_P] = 0.5;
    c.in[2] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(3)};
    op_refused(&sn_op_dropout, &c, 3, "index must be [2], found [3]");
    c.in[2] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(2)};
    op_refused(&sn_op_dropout, &c, 3, "index must be i32, found f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_the_documented_key), cmocka_unit_test(nothing_and_everything),
                                       cmocka_unit_test(rows_keep_their_bits),  cmocka_unit_test(places_say_which_rows),
                                       cmocka_unit_test(keeps_the_share),       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
