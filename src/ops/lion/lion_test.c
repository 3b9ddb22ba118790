#include "support/small_ops.h"

#include <math.h>
#include <string.h>

#include "ops/lion/lion.h"
#include "tensor/convert.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/optimizers/golden.txt"
enum { ELEMENTS = 7 * 19 /* of the golden script */ };

extern const sn_op sn_op_lion;

static sn_call call(sn_dtype w, sn_dtype g, sn_dtype state, sn_dtype w16, int64_t n) { /* w16 = SN_F32: none */
    sn_call c = {.attrs = {.f = {0.9, 0.99, 0.1}, .i = {[SN_LION_PARAMETER] = 5}}};
    c.in[0] = op_tensor(w, sn_shape_of(n), 1, 1);
    c.in[1] = op_tensor(g, sn_shape_of(n), 2, 1);
    c.in[2] = op_tensor(state, sn_shape_of(n), 3, 0.1f);
    c.in[3] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-3f, 0.19f, 0.0975f, 1, 2, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[4] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){0.5f, 1, 3, 0});
    if (w16 != SN_F32) c.in[5] = op_tensor(w16, sn_shape_of(n), 6, 1);
    op_prepare(&sn_op_lion, &c, w16 != SN_F32 ? 6 : 5);
    return c;
}

static void every_form(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 63, 65, 4097, 40009};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int w = 0; w < 2; w++) TEST_EACH_FORM(g)
    for (int w16 = 0; w16 < 3; w16++) {
        sn_call c = call(test_forms[w], test_forms[g], test_forms[(w + g) % 2], test_forms[w16], sizes[s]);
        op_same_bits(&sn_op_lion, &c);
        for (int64_t i = 0; i < sizes[s]; i++) assert_true(isfinite(op_get(&c.in[0], i)) && isfinite(op_get(&c.in[2], i)));
        op_free_call(&c);
    }
}

static void golden(const sn_tensor *t, const char *name, double tolerance) {
    float want[ELEMENTS];
    op_golden(GOLDEN, name, want, ELEMENTS);
    for (int64_t i = 0; i < ELEMENTS; i++)
        if (!(fabs(op_get(t, i) - (double)want[i]) <= tolerance))
            fail_msg("%s[%d]: %.9g, wanted %.9g", name, (int)i, op_get(t, i), (double)want[i]);
}

static void a_hundred_steps_of_bitsandbytes(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, ELEMENTS);
    for (int64_t i = 0; i < ELEMENTS; i++) {
        op_set(&c.in[0], i, (double)((5 * i) % 17 - 8) / 16);
        op_set(&c.in[2], i, 0);
    }
    op_set(&c.in[4], 0, 1);
    for (int step = 1; step <= 100; step++) {
        for (int64_t i = 0; i < ELEMENTS; i++) op_set(&c.in[1], i, (double)((13 * i + 7 * step) % 29 - 14) / 64);
        op_run(&sn_op_lion, &c);
        if (step == 1) golden(&c.in[0], "lion.w.1", 1e-7);
        if (step == 10) golden(&c.in[0], "lion.w.10", 3e-7);
    }
    golden(&c.in[0], "lion.w.100", 2e-6);
    golden(&c.in[2], "lion.exp_avg.100", 1e-7);
    op_free_call(&c);
}

static void nothing_moves_without_a_sign(void **state) { /* zero moment, zero gradient: the weight only decays */
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, 65);
    for (int64_t i = 0; i < 65; i++) {
        op_set(&c.in[0], i, 1);
        op_set(&c.in[1], i, 0);
        op_set(&c.in[2], i, 0);
    }
    op_run(&sn_op_lion, &c);
    for (int64_t i = 0; i < 65; i++) assert_true(op_get(&c.in[0], i) == (double)(float)(1 - (double)1e-3f * 0.1));
    op_free_call(&c);
}

static void not_applied(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_BF16, 1027), before = call(SN_F32, SN_F32, SN_F32, SN_BF16, 1027);
    op_set(&c.in[4], 1, 0);
    op_set(&c.in[4], 0, NAN);
    op_set(&c.in[1], 3, NAN);
    op_same_bits(&sn_op_lion, &c);
    const int changed[] = {0, 2, 5};
    for (int k = 0; k < 3; k++) assert_memory_equal(c.in[changed[k]].data, before.in[changed[k]].data, sn_tensor_bytes(&c.in[changed[k]]));
    op_free_call(&c);
    op_free_call(&before);
}

static void shards_keep_their_bits(void **state) {
    (void)state;
    sn_call whole = call(SN_BF16, SN_F32, SN_BF16, SN_F32, 2049), part = call(SN_BF16, SN_F32, SN_BF16, SN_F32, 1000);
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < 1000; i++) op_set(&part.in[k], i, op_get(&whole.in[k], 1003 + i));
    part.attrs.i[SN_LION_FIRST] = 1003;
    op_run(&sn_op_lion, &whole);
    op_run(&sn_op_lion, &part);
    assert_memory_equal(part.in[0].data, (char *)whole.in[0].data + 1003 * 2, 2000);
    assert_memory_equal(part.in[2].data, (char *)whole.in[2].data + 1003 * 2, 2000);
    op_free_call(&whole);
    op_free_call(&part);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_BF16, 4);
    c.in[2].dtype = SN_F16;
    op_refused(&sn_op_lion, &c, 6, "lion: m must be f32 or bf16, found f16");
    c.in[5].dtype = SN_F32;
    op_refused(&sn_op_lion, &c, 6, "w16 must be bf16 or f16, found f32");
    c.in[1].shape = sn_shape_of(5);
    op_refused(&sn_op_lion, &c, 6, "g must be [4], found [5]");
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),  cmocka_unit_test(a_hundred_steps_of_bitsandbytes), cmocka_unit_test(nothing_moves_without_a_sign),
        cmocka_unit_test(not_applied), cmocka_unit_test(shards_keep_their_bits),          cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
