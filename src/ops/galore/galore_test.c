#include "ops/galore/galore.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/small_ops.h"
#include "tensor/convert.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/optimizers/galore.txt"
enum { MOST = 7 * 19, RANK = 3 /* of the golden script */ };

extern const sn_op sn_op_galore, sn_op_adamw;

static sn_call call(sn_dtype w, sn_dtype g, sn_dtype state, sn_dtype w16, int64_t rows, int64_t columns,
                    int64_t rank) { /* w16 = SN_F32: none */
    const int64_t side = rows < columns ? rows : columns, longer = rows + columns - side;
    sn_call c = {.attrs = {.f = {0.9, 0.95, 1e-8, 0.1, 0.25}, .i = {[SN_GALORE_PARAMETER] = 5}}};
    c.in[0] = op_tensor(w, sn_shape_of(rows, columns), 1, 1);
    c.in[1] = op_tensor(g, sn_shape_of(rows, columns), 2, 1);
    c.in[2] = op_tensor(SN_F32, sn_shape_of(rank, side), 3, 1);
    c.in[3] = op_tensor(state, sn_shape_of(rank, longer), 4, 0.1f);
    c.in[4] = op_tensor(state, sn_shape_of(rank, longer), 5, 0.1f);
    for (int64_t i = 0; i < sn_elements(&c.in[4]); i++) op_set(&c.in[4], i, fabs(op_get(&c.in[4], i)));
    c.in[5] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 0.19f, 0.0975f, 1, 2, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[6] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){0.5f, 1, 3, 0});
    if (w16 != SN_F32) c.in[7] = op_tensor(w16, sn_shape_of(rows, columns), 6, 1);
    op_prepare(&sn_op_galore, &c, w16 != SN_F32 ? 8 : 7);
    return c;
}

static void every_form(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1}, {1, 65, 1}, {63, 1, 1}, {17, 63, 5}, {65, 34, 34}, {130, 130, 33}, {33, 1061, 12}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int w = 0; w < 2; w++) TEST_EACH_FORM(g) {
                sn_call c = call(test_forms[w], test_forms[g], test_forms[(w + g) % 2], test_forms[(w + g) % 3], shapes[s][0], shapes[s][1],
                                 shapes[s][2]);
                op_same_bits(&sn_op_galore, &c);
                for (int64_t i = 0; i < sn_elements(&c.in[0]); i++) assert_true(isfinite(op_get(&c.in[0], i)));
                op_free_call(&c);
            }
}

static void golden(const sn_tensor *t, const char *shape, const char *what, double tolerance) {
    char name[64];
    float want[MOST];
    const int64_t n = sn_elements(t);
    snprintf(name, sizeof name, "galore.%s.%s", shape, what);
    op_golden(GOLDEN, name, want, n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(op_get(t, i) - (double)want[i]) <= tolerance))
            fail_msg("%s[%d]: %.9g, wanted %.9g", name, (int)i, op_get(t, i), (double)want[i]);
}

static void five_steps(void **state) {
    (void)state;
    static const double weight[] = {4, 3, 2, 1.0 / 512, 1.0 / 1024};
    for (int tall = 0; tall < 2; tall++) {
        const int64_t rows = tall ? 19 : 7, columns = tall ? 7 : 19;
        const char *shape = tall ? "19x7" : "7x19";
        sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, rows, columns, RANK);
        char name[32];
        snprintf(name, sizeof name, "galore.%s.p", shape);
        op_golden(GOLDEN, name, c.in[2].data, RANK * 7);
        for (int64_t i = 0; i < MOST; i++) op_set(&c.in[0], i, (double)((5 * i) % 17 - 8) / 16);
        memset(c.in[3].data, 0, sn_tensor_bytes(&c.in[3]));
        memset(c.in[4].data, 0, sn_tensor_bytes(&c.in[4]));
        op_set(&c.in[6], 0, 1);
        for (int step = 1; step <= 5; step++) {
            for (int64_t i = 0; i < MOST; i++) {
                double sum = 0;
                for (int k = 0; k < 5; k++)
                    sum += weight[k] * ((double)((13 * (i / columns) + 7 * step + 5 * k) % 29 - 14) / 16) *
                           ((double)((11 * (i % columns) + 3 * step + 8 * k) % 31 - 15) / 16);
                op_set(&c.in[1], i, sum);
            }
            op_set(&c.in[5], 1, 1 - pow(0.9, step));
            op_set(&c.in[5], 2, 1 - pow(0.95, step));
            op_set(&c.in[5], 4, step);
            op_run(&sn_op_galore, &c);
            if (step == 1) golden(&c.in[0], shape, "w.1", 1e-6);
        }
        golden(&c.in[0], shape, "w.5", 3e-6);
        golden(&c.in[3], shape, "m.5", 3e-6);
        op_free_call(&c);
    }
}

/* Behind a whole basis, the axes, a scale of 1 gives AdamW. */
static void whole_basis_is_adamw(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, 9, 12, 9), a = {.attrs = {.f = {0.9, 0.95, 1e-8, 0.1}}};
    c.attrs.f[SN_GALORE_SCALE] = 1;
    for (int64_t i = 0; i < 81; i++) op_set(&c.in[2], i, i % 10 == 0);
    const int from[] = {0, 1, 3, 4};
    for (int k = 0; k < 4; k++) {
        a.in[k] = op_tensor(SN_F32, sn_shape_of(9, 12), 0, 0);
        memcpy(a.in[k].data, c.in[from[k]].data, 9 * 12 * 4);
    }
    a.in[4] = op_tensor_of(SN_F32, sn_shape_of(8), c.in[5].data);
    a.in[5] = op_tensor_of(SN_F32, sn_shape_of(4), c.in[6].data);
    op_prepare(&sn_op_adamw, &a, 6);
    op_run(&sn_op_galore, &c);
    op_run(&sn_op_adamw, &a);
    for (int64_t i = 0; i < 108; i++) {
        assert_true(fabs(op_get(&c.in[0], i) - op_get(&a.in[0], i)) < 1e-6);
        assert_true(op_get(&c.in[3], i) == op_get(&a.in[2], i) && op_get(&c.in[4], i) == op_get(&a.in[3], i));
    }
    op_free_call(&c);
    op_free_call(&a);
}

static void not_applied(void **state) {
    (void)state;
    sn_call c = call(SN_BF16, SN_F32, SN_BF16, SN_F16, 9, 12, 4), before = call(SN_BF16, SN_F32, SN_BF16, SN_F16, 9, 12, 4);
    op_set(&c.in[1], 3, NAN);
    op_set(&c.in[6], 1, 0);
    op_run(&sn_op_galore, &c);
    const int kept[] = {0, 2, 3, 4, 7};
    for (int k = 0; k < 5; k++) assert_memory_equal(c.in[kept[k]].data, before.in[kept[k]].data, sn_tensor_bytes(&c.in[kept[k]]));
    op_free_call(&c);
    op_free_call(&before);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, SN_F32, 9, 12, 4);
    c.in[3].shape = sn_shape_of(4, 9);
    op_refused(&sn_op_galore, &c, 7, "m must be [4,12], found [4,9]");
    c.in[2].shape = sn_shape_of(4, 12);
    op_refused(&sn_op_galore, &c, 7, "p must be [1 to 9, 9] to go with w [9, 12], found [4, 12]");
    c.in[2].shape = sn_shape_of(4, 9);
    c.in[3].shape = sn_shape_of(4, 12);
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form), cmocka_unit_test(five_steps), cmocka_unit_test(whole_basis_is_adamw),
                                       cmocka_unit_test(not_applied), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
