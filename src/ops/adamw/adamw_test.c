#include "support/small_ops.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "ops/adamw/adamw.h"
#include "tensor/convert.h"

extern const sn_op sn_op_adamw;

static sn_call call(sn_dtype w, sn_dtype g, sn_dtype state, sn_dtype w16, int64_t n) { /* w16 = SN_F32: none */
    sn_call c = {.attrs = {.f = {0.9, 0.95, 1e-8, 0.1}, .i = {[SN_ADAMW_PARAMETER] = 5}}};
    c.in[0] = op_tensor(w, sn_shape_of(n), 1, 1);
    c.in[1] = op_tensor(g, sn_shape_of(n), 2, 1);
    c.in[2] = op_tensor(state, sn_shape_of(n), 3, 0.1f);
    c.in[3] = op_tensor(state, sn_shape_of(n), 4, 0.1f);
    for (int64_t i = 0; i < n; i++) op_set(&c.in[3], i, fabs(op_get(&c.in[3], i)));
    c.in[4] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 0.19f, 0.0975f, 1, 2, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[5] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){0.5f, 1, 3, 0});
    if (w16 != SN_F32) c.in[6] = op_tensor(w16, sn_shape_of(n), 6, 1);
    op_prepare(&sn_op_adamw, &c, w16 != SN_F32 ? 7 : 6);
    return c;
}

static void every_form(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 15, 1027, 40009};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int w = 0; w < 2; w++)
            for (int g = 0; g < 3; g++)
                for (int m = 0; m < 2; m++)
                    for (int w16 = 0; w16 < 3; w16++) {
                        sn_call c = call(test_forms[w], test_forms[g], test_forms[m], test_forms[w16], sizes[s]);
                        op_same_bits(&sn_op_adamw, &c);
                        if (w16 && !w) /* the 16-bit copy is the new weight, rounded to nearest */
                            for (int64_t i = 0; i < sizes[s]; i++) {
                                sn_tensor one = op_tensor(test_forms[w16], sn_shape_of(1), 0, 0);
                                op_set(&one, 0, op_get(&c.in[0], i));
                                assert_true(op_get(&one, 0) == op_get(&c.in[6], i));
                                op_free_tensor(&one);
                            }
                        op_free_call(&c);
                    }
}

static void against_f64(void **state) {
    (void)state;
    const int64_t n = 1027;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, n), before = call(SN_F32, SN_F32, SN_F32, SN_F32, n);
    op_run(&sn_op_adamw, &c);
    const double lr = op_get(&c.in[4], 0), bc1 = op_get(&c.in[4], 1), bc2 = op_get(&c.in[4], 2);
    for (int64_t i = 0; i < n; i++) {
        const double g = 0.5 * op_get(&before.in[1], i);
        const double m = 0.9 * op_get(&before.in[2], i) + 0.1 * g, v = 0.95 * op_get(&before.in[3], i) + 0.05 * g * g;
        const double w = op_get(&before.in[0], i) * (1 - lr * 0.1) - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + 1e-8);
        assert_true(fabs(op_get(&c.in[0], i) - w) < 3e-7);
        assert_true(fabs(op_get(&c.in[2], i) - m) < 3e-7);
        assert_true(fabs(op_get(&c.in[3], i) - v) < 3e-7);
    }
    op_free_call(&c);
    op_free_call(&before);
}

static void a_hundred_steps_of_torch(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, TEST_PARAMETERS);
    for (int64_t i = 0; i < TEST_PARAMETERS; i++) {
        op_set(&c.in[0], i, (double)((5 * i) % 17 - 8) / 16);
        op_set(&c.in[2], i, 0);
        op_set(&c.in[3], i, 0);
    }
    op_set(&c.in[5], 0, 1);
    for (int step = 1; step <= 100; step++) {
        for (int64_t i = 0; i < TEST_PARAMETERS; i++) op_set(&c.in[1], i, (double)((13 * i + 7 * step) % 29 - 14) / 64);
        op_set(&c.in[4], 1, 1 - pow(0.9, step));
        op_set(&c.in[4], 2, 1 - pow(0.95, step));
        op_run(&sn_op_adamw, &c);
        if (step == 1) test_is_golden(&c.in[0], "adamw.w.1", 1e-7);
        if (step == 10) test_is_golden(&c.in[0], "adamw.w.10", 2e-7);
    }
    test_is_golden(&c.in[0], "adamw.w.100", 1e-6);
    test_is_golden(&c.in[2], "adamw.exp_avg.100", 1e-7);
    test_is_golden(&c.in[3], "adamw.exp_avg_sq.100", 1e-7);
    op_free_call(&c);
}

static void decay_alone(void **state) { /* zero gradients, lr 1: a matrix with decay 0.1 shrinks to 0.9, a norm without stays */
    (void)state;
    for (int decays = 0; decays <= 1; decays++) {
        sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, 33);
        c.attrs.f[SN_ADAMW_WEIGHT_DECAY] = decays ? 0.1 : 0;
        for (int64_t i = 0; i < 33; i++) {
            op_set(&c.in[0], i, 1);
            for (int k = 1; k <= 3; k++) op_set(&c.in[k], i, 0);
        }
        op_set(&c.in[4], 0, 1);
        op_run(&sn_op_adamw, &c);
        for (int64_t i = 0; i < 33; i++) assert_true(op_get(&c.in[0], i) == (decays ? (double)0.9f : 1));
        op_free_call(&c);
    }
}

static void not_applied(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_BF16, 1027), before = call(SN_F32, SN_F32, SN_F32, SN_BF16, 1027);
    op_set(&c.in[5], 1, 0);
    op_set(&c.in[5], 0, NAN);
    op_same_bits(&sn_op_adamw, &c);
    const int changed[] = {0, 2, 3, 6};
    for (int k = 0; k < 4; k++) assert_memory_equal(c.in[changed[k]].data, before.in[changed[k]].data, sn_tensor_bytes(&c.in[changed[k]]));
    op_free_call(&c);
    op_free_call(&before);
}

static void rounds_by_the_documented_key(void **state) {
    (void)state;
    const int64_t n = 1027, first = INT64_C(4) * UINT32_MAX - 400; /* counters that cross 2^32 */
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, n), h = call(SN_BF16, SN_F32, SN_BF16, SN_F32, n);
    const int roles[] = {0, 2, 3};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < n; i++) op_set(&c.in[roles[k]], i, op_get(&h.in[roles[k]], i));
    h.attrs.i[SN_ADAMW_FIRST] = first;
    op_run(&sn_op_adamw, &c);
    op_same_bits(&sn_op_adamw, &h);
    for (uint32_t k = 0; k < 3; k++)
        for (int64_t i = 0; i < n; i++) {
            const uint64_t counter = (uint64_t)(first + i) / 4;
            const sn_rng4 r = sn_philox(123, 456, 2, 5 * 4 + k, (uint32_t)counter, (uint32_t)(counter >> 32));
            const uint32_t bits = sn_f32_bits(((const float *)c.in[roles[k]].data)[i]);
            assert_int_equal(((const uint16_t *)h.in[roles[k]].data)[i], (bits + (r.v[(first + i) % 4] >> 16)) >> 16);
        }
    op_free_call(&c);
    op_free_call(&h);
}

/* The last update of a turn, which will leave the 16-bit weight alone. */
static void last_copy_is_rounded_stochastically(void **state) {
    (void)state;
    const int64_t n = 1027, first = 512;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_BF16, n);
    c.attrs.i[SN_ADAMW_FIRST] = first;
    op_set(&c.in[4], 7, 9);
    op_same_bits(&sn_op_adamw, &c);
    int other = 0;
    for (int64_t i = 0; i < n; i++) {
        const float w = ((const float *)c.in[0].data)[i];
        const uint64_t counter = (uint64_t)(first + i) / 4;
        const sn_rng4 r = sn_philox(123, 456, 9, 5 * 4 + 3, (uint32_t)counter, (uint32_t)(counter >> 32));
        const uint16_t h = ((const uint16_t *)c.in[6].data)[i];
        assert_int_equal(h, (sn_f32_bits(w) + (r.v[(first + i) % 4] >> 16)) >> 16);
        other += h != sn_f32_to_bf16(w);
    }
    assert_true(other > n / 10 && other < n / 2);
    op_free_call(&c);
    c = call(SN_F32, SN_F32, SN_F32, SN_F16, n); /* has bits enough */
    op_set(&c.in[4], 7, 9);
    op_same_bits(&sn_op_adamw, &c);
    for (int64_t i = 0; i < n; i++) assert_int_equal(((const uint16_t *)c.in[6].data)[i], sn_f32_to_f16(((const float *)c.in[0].data)[i]));
    op_free_call(&c);
}

/* 1.0 minus 1e-3, a thousand times, all in bf16: rounding to nearest would stay at 1.0. */
static void small_steps_in_bf16(void **state) {
    (void)state;
    sn_call c = call(SN_BF16, SN_F32, SN_F32, SN_F32, 256);
    c.attrs.f[SN_ADAMW_WEIGHT_DECAY] = 0;
    for (int64_t i = 0; i < 256; i++) {
        op_set(&c.in[0], i, 1);
        op_set(&c.in[1], i, 1); /* a constant gradient moves by the learning rate exactly */
        op_set(&c.in[2], i, 0);
        op_set(&c.in[3], i, 0);
    }
    op_set(&c.in[4], 0, 1e-3);
    op_set(&c.in[5], 0, 1);
    for (int step = 1; step <= 1000; step++) {
        op_set(&c.in[4], 1, 1 - pow(0.9, step));
        op_set(&c.in[4], 2, 1 - pow(0.95, step));
        op_set(&c.in[4], 4, step);
        op_run(&sn_op_adamw, &c);
    }
    double mean = 0;
    for (int64_t i = 0; i < 256; i++) {
        assert_true(fabs(op_get(&c.in[0], i)) < 0.25); /* about five standard deviations of one weight */
        mean += op_get(&c.in[0], i) / 256;
    }
    assert_true(fabs(mean) < 0.02);
    op_free_call(&c);
}

static void shards_keep_their_bits(void **state) {
    (void)state;
    sn_call whole = call(SN_BF16, SN_F32, SN_BF16, SN_F32, 2049), part = call(SN_BF16, SN_F32, SN_BF16, SN_F32, 1000);
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < 1000; i++) op_set(&part.in[k], i, op_get(&whole.in[k], 1003 + i));
    part.attrs.i[SN_ADAMW_FIRST] = 1003;
    op_run(&sn_op_adamw, &whole);
    op_run(&sn_op_adamw, &part);
    for (int k = 0; k < 4; k++)
        if (k != 1) assert_memory_equal(part.in[k].data, (char *)whole.in[k].data + 1003 * 2, 2000);
    op_free_call(&whole);
    op_free_call(&part);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_BF16, 4);
    c.in[6].dtype = SN_F32;
    op_refused(&sn_op_adamw, &c, 7, "w16 must be bf16 or f16, found f32");
    c.in[3].dtype = SN_F16;
    op_refused(&sn_op_adamw, &c, 7, "v must be f32 or bf16, found f16");
    c.in[2].shape = sn_shape_of(5);
    op_refused(&sn_op_adamw, &c, 7, "m must be [4], found [5]");
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),
        cmocka_unit_test(against_f64),
        cmocka_unit_test(a_hundred_steps_of_torch),
        cmocka_unit_test(decay_alone),
        cmocka_unit_test(not_applied),
        cmocka_unit_test(rounds_by_the_documented_key),
        cmocka_unit_test(last_copy_is_rounded_stochastically),
        cmocka_unit_test(refuses),
        cmocka_unit_test(small_steps_in_bf16),
        cmocka_unit_test(shards_keep_their_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
