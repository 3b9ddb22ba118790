#include "support/small_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/muon/muon.h"
#include "tensor/convert.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/optimizers/golden.txt"
enum { MOST = 7 * 19 /* of the golden script */ };

extern const sn_op sn_op_muon;

static sn_call call(sn_dtype w, sn_dtype g, sn_dtype state, sn_dtype w16, int64_t rows, int64_t columns) { /* w16 = SN_F32: none */
    const double scale = rows > columns && columns ? sqrt((double)rows / (double)columns) : 1;
    sn_call c = {.attrs = {.f = {0.95, 0.1, scale}, .i = {[SN_MUON_PARAMETER] = 5}}};
    c.in[0] = op_tensor(w, sn_shape_of(rows, columns), 1, 1);
    c.in[1] = op_tensor(g, sn_shape_of(rows, columns), 2, 1);
    c.in[2] = op_tensor(state, sn_shape_of(rows, columns), 3, 0.1f);
    c.in[3] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 0.19f, 0.0975f, 1, 2, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[4] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){0.5f, 1, 3, 0});
    if (w16 != SN_F32) c.in[5] = op_tensor(w16, sn_shape_of(rows, columns), 6, 1);
    op_prepare(&sn_op_muon, &c, w16 != SN_F32 ? 6 : 5);
    return c;
}

static void every_form(void **state) {
    (void)state;
    const int64_t shapes[][2] = {{0, 5}, {5, 0}, {1, 1}, {1, 65}, {63, 1}, {17, 63}, {65, 34}, {130, 130}, {33, 1061}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int w = 0; w < 2; w++) TEST_EACH_FORM(g) {
                sn_call c =
                    call(test_forms[w], test_forms[g], test_forms[(w + g) % 2], test_forms[(w + g) % 3], shapes[s][0], shapes[s][1]);
                op_same_bits(&sn_op_muon, &c);
                for (int64_t i = 0; i < sn_elements(&c.in[0]); i++)
                    assert_true(isfinite(op_get(&c.in[0], i)) && isfinite(op_get(&c.in[2], i)));
                op_free_call(&c);
            }
}

static void golden(const sn_tensor *t, const char *what, double tolerance) {
    char name[64];
    float want[MOST];
    snprintf(name, sizeof name, "muon.%dx%d.%s", (int)t->shape.d[0], (int)t->shape.d[1], what);
    op_golden(GOLDEN, name, want, MOST);
    for (int64_t i = 0; i < MOST; i++)
        if (!(fabs(op_get(t, i) - (double)want[i]) <= tolerance))
            fail_msg("%s[%d]: %.9g, wanted %.9g", name, (int)i, op_get(t, i), (double)want[i]);
}

static void five_steps(void **state) {
    (void)state;
    for (int tall = 0; tall < 2; tall++) {
        sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, tall ? 19 : 7, tall ? 7 : 19);
        for (int64_t i = 0; i < MOST; i++) op_set(&c.in[0], i, (double)((5 * i) % 17 - 8) / 16);
        memset(c.in[2].data, 0, sn_tensor_bytes(&c.in[2]));
        op_set(&c.in[4], 0, 1);
        for (int step = 1; step <= 5; step++) {
            for (int64_t i = 0; i < MOST; i++) op_set(&c.in[1], i, pow((double)((13 * i + 7 * step) % 29 - 14) / 64, 3));
            op_run(&sn_op_muon, &c);
            if (step == 1) golden(&c.in[0], "w.1", 1e-6);
        }
        golden(&c.in[0], "w.5", 3e-6);
        golden(&c.in[2], "m.5", 1e-8);
        op_free_call(&c);
    }
}

/* A zero gradient with a zero momentum moves nothing: the weights only decay. */
static void zero_gradient(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, 9, 12);
    for (int64_t i = 0; i < 108; i++) {
        op_set(&c.in[0], i, 1);
        op_set(&c.in[1], i, 0);
        op_set(&c.in[2], i, 0);
    }
    op_run(&sn_op_muon, &c);
    for (int64_t i = 0; i < 108; i++) assert_true(op_get(&c.in[0], i) == (double)(float)(1 - (double)1e-2f * 0.1));
    op_free_call(&c);
}

/* What is added is nearly orthogonal, whatever the size of the gradient: its singular values lie around 1. */
static void nearly_orthogonal(void **state) {
    (void)state;
    enum { ROWS = 24, COLUMNS = 60 };
    for (int k = 0; k < 2; k++) {
        sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, ROWS, COLUMNS);
        double square = 0;
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
            op_set(&c.in[0], i, 0);
            op_set(&c.in[1], i, op_get(&c.in[1], i) * (k ? 1e-3 : 1e3));
            op_set(&c.in[2], i, 0);
        }
        op_run(&sn_op_muon, &c);
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) square += pow(op_get(&c.in[0], i) / 1e-2, 2);
        assert_true(square > ROWS * 0.6 && square < ROWS * 1.4); /* the sum of their squares */
        op_free_call(&c);
    }
}

static void not_applied(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_BF16, 79, 13), before = call(SN_F32, SN_F32, SN_F32, SN_BF16, 79, 13);
    op_set(&c.in[4], 1, 0);
    op_set(&c.in[4], 0, NAN);
    op_set(&c.in[1], 3, NAN);
    op_same_bits(&sn_op_muon, &c);
    const int changed[] = {0, 2, 5};
    for (int k = 0; k < 3; k++) assert_memory_equal(c.in[changed[k]].data, before.in[changed[k]].data, sn_tensor_bytes(&c.in[changed[k]]));
    op_free_call(&c);
    op_free_call(&before);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, 4, 5);
    c.in[2].dtype = SN_F16;
    op_refused(&sn_op_muon, &c, 5, "m must be f32 or bf16, found f16");
    for (int k = 0; k < 3; k++) c.in[k].shape = sn_shape_of(20);
    op_refused(&sn_op_muon, &c, 5, "w must have 2 dimensions, found [20]");
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),        cmocka_unit_test(five_steps),  cmocka_unit_test(zero_gradient),
        cmocka_unit_test(nearly_orthogonal), cmocka_unit_test(not_applied), cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
