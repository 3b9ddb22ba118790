#include "support/small_ops.h"

#include <math.h>

#include "ops/sgd/sgd.h"
#include "tensor/convert.h"

extern const sn_op sn_op_sgd;

static sn_call call(sn_dtype w, sn_dtype g, bool momentum, sn_dtype w16, int64_t n) { /* w16 = SN_F32: none */
    sn_call c = {.attrs = {.f = {[SN_SGD_MOMENTUM] = momentum ? 0.9 : 0, [SN_SGD_WEIGHT_DECAY] = 0.1}, .i = {[SN_SGD_PARAMETER] = 5}}};
    c.in[0] = op_tensor(w, sn_shape_of(n), 1, 1);
    c.in[1] = op_tensor(g, sn_shape_of(n), 2, 1);
    if (momentum) c.in[2] = op_tensor(w, sn_shape_of(n), 3, 0.1f);
    c.in[3] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 1, 1, 1, 2, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[4] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){1, 1, 3, 0});
    if (w16 != SN_F32) c.in[5] = op_tensor(w16, sn_shape_of(n), 6, 1);
    op_prepare(&sn_op_sgd, &c, w16 != SN_F32 ? 6 : 5);
    return c;
}

static void every_form(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 15, 1027, 40009};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int w = 0; w < 2; w++)
            for (int g = 0; g < 3; g++)
                for (int momentum = 0; momentum <= 1; momentum++)
                    for (int w16 = 0; w16 < 3; w16++) {
                        sn_call c = call(test_forms[w], test_forms[g], momentum, test_forms[w16], sizes[s]);
                        op_same_bits(&sn_op_sgd, &c);
                        op_free_call(&c);
                    }
}

static void a_hundred_steps_of_torch(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, true, SN_F32, TEST_PARAMETERS);
    for (int64_t i = 0; i < TEST_PARAMETERS; i++) {
        op_set(&c.in[0], i, (double)((5 * i) % 17 - 8) / 16);
        op_set(&c.in[2], i, 0);
    }
    for (int step = 1; step <= 100; step++) {
        for (int64_t i = 0; i < TEST_PARAMETERS; i++) op_set(&c.in[1], i, (double)((13 * i + 7 * step) % 29 - 14) / 64);
        op_run(&sn_op_sgd, &c);
        if (step == 1) test_is_golden(&c.in[0], "sgd.w.1", 1e-7);
        if (step == 10) test_is_golden(&c.in[0], "sgd.w.10", 2e-7);
    }
    test_is_golden(&c.in[0], "sgd.w.100", 1e-6);
    test_is_golden(&c.in[2], "sgd.momentum_buffer.100", 1e-6);
    op_free_call(&c);
}

static void small_steps_in_bf16(void **state) { /* 1.0 minus 1e-3, a thousand times: rounding to nearest would stay at 1.0 */
    (void)state;
    sn_call c = call(SN_BF16, SN_F32, false, SN_F32, 256);
    c.attrs.f[SN_SGD_WEIGHT_DECAY] = 0;
    for (int64_t i = 0; i < 256; i++) {
        op_set(&c.in[0], i, 1);
        op_set(&c.in[1], i, 1);
    }
    op_set(&c.in[3], 0, 1e-3);
    for (int step = 0; step < 1000; step++) {
        op_set(&c.in[3], 4, step);
        op_run(&sn_op_sgd, &c);
    }
    double mean = 0;
    for (int64_t i = 0; i < 256; i++) {
        assert_true(fabs(op_get(&c.in[0], i)) < 0.25); /* about five standard deviations of one weight */
        mean += op_get(&c.in[0], i) / 256;
    }
    assert_true(fabs(mean) < 0.02);
    op_free_call(&c);
}

static void decay_alone(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, false, SN_F32, 33);
    for (int64_t i = 0; i < 33; i++) {
        op_set(&c.in[0], i, 1);
        op_set(&c.in[1], i, 0);
    }
    op_set(&c.in[3], 0, 1);
    op_run(&sn_op_sgd, &c);
    for (int64_t i = 0; i < 33; i++) assert_true(op_get(&c.in[0], i) == (double)0.9f);
    op_free_call(&c);
}

static void not_applied(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, true, SN_F16, 1027), before = call(SN_F32, SN_F32, true, SN_F16, 1027);
    op_set(&c.in[4], 1, 0);
    op_same_bits(&sn_op_sgd, &c);
    const int changed[] = {0, 2, 5};
    for (int k = 0; k < 3; k++) assert_memory_equal(c.in[changed[k]].data, before.in[changed[k]].data, sn_tensor_bytes(&c.in[changed[k]]));
    op_free_call(&c);
    op_free_call(&before);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, false, SN_F32, 4);
    c.attrs.f[SN_SGD_MOMENTUM] = 0.9;
    op_refused(&sn_op_sgd, &c, 5, "momentum 0.9 needs its state");
    c.attrs.f[SN_SGD_MOMENTUM] = 0;
    op_refused(&sn_op_sgd, &c, 4, "clip is missing");
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form),  cmocka_unit_test(a_hundred_steps_of_torch),
                                       cmocka_unit_test(decay_alone), cmocka_unit_test(small_steps_in_bf16),
                                       cmocka_unit_test(not_applied), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
