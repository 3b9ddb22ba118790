#include "support/small_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/adafactor/adafactor.h"
#include "tensor/convert.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/optimizers/golden.txt"
enum { ROWS = 7, COLUMNS = 19, ELEMENTS = ROWS * COLUMNS /* of the golden script */ };

extern const sn_op sn_op_adafactor;

/* columns 0: a vector of `rows` elements. w16 = SN_F32: none. */
static sn_call call(sn_dtype w, sn_dtype g, sn_dtype w16, int64_t rows, int64_t columns) {
    sn_call c = {.attrs = {.f = {0.1}, .i = {[SN_ADAFACTOR_PARAMETER] = 5}}};
    const sn_shape shape = columns ? sn_shape_of(rows, columns) : sn_shape_of(rows);
    c.in[0] = op_tensor(w, shape, 1, 1);
    c.in[1] = op_tensor(g, shape, 2, 1);
    c.in[2] = op_tensor(SN_F32, sn_shape_of(rows), 3, 0.1f);
    if (columns) c.in[3] = op_tensor(SN_F32, sn_shape_of(columns), 4, 0.1f);
    for (int k = 2; k < 4; k++)
        for (int64_t i = 0; i < (c.in[k].data ? sn_elements(&c.in[k]) : 0); i++) op_set(&c.in[k], i, fabs(op_get(&c.in[k], i)));
    c.in[4] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 0.19f, 0.0975f, 1, 2, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[5] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){0.5f, 1, 3, 0});
    if (w16 != SN_F32) c.in[6] = op_tensor(w16, shape, 6, 1);
    op_prepare(&sn_op_adafactor, &c, w16 != SN_F32 ? 7 : 6);
    return c;
}

static void every_form(void **state) {
    (void)state;
    const int64_t shapes[][2] = {{0, 0}, {1, 0},  {63, 0}, {65, 0},    {4097, 0}, {40009, 0},
                                 {1, 1}, {1, 65}, {63, 1}, {17, 1061}, {130, 33}, {3, 4097}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int w = 0; w < 2; w++) TEST_EACH_FORM(g)
    for (int w16 = 0; w16 < 3; w16++) {
        sn_call c = call(test_forms[w], test_forms[g], test_forms[w16], shapes[s][0], shapes[s][1]);
        op_same_bits(&sn_op_adafactor, &c);
        for (int64_t i = 0; i < sn_elements(&c.in[0]); i++) assert_true(isfinite(op_get(&c.in[0], i)));
        op_free_call(&c);
    }
}

/* A matrix of no rows or no columns has nothing to update. */
static void nothing_to_do(void **state) {
    (void)state;
    const int64_t shapes[][2] = {{0, 5}, {5, 0}};
    for (int s = 0; s < 2; s++) {
        sn_call c = {.attrs = {.f = {0.1}}};
        c.in[0] = op_tensor(SN_F32, sn_shape_of(shapes[s][0], shapes[s][1]), 1, 1);
        c.in[1] = op_tensor(SN_F32, sn_shape_of(shapes[s][0], shapes[s][1]), 2, 1);
        c.in[2] = op_tensor(SN_F32, sn_shape_of(shapes[s][0]), 3, 1);
        c.in[3] = op_tensor(SN_F32, sn_shape_of(shapes[s][1]), 4, 1);
        c.in[4] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 1, 1, 1, 2, 0, 0, 0});
        c.in[5] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){1, 1, 3, 0});
        op_prepare(&sn_op_adafactor, &c, 6);
        op_same_bits(&sn_op_adafactor, &c);
        op_free_call(&c);
    }
}

static void golden(const sn_tensor *t, const char *which, const char *what, double tolerance) {
    char name[64];
    float want[ELEMENTS];
    snprintf(name, sizeof name, "adafactor.%s.%s", which, what);
    op_golden(GOLDEN, name, want, sn_elements(t));
    for (int64_t i = 0; i < sn_elements(t); i++)
        if (!(fabs(op_get(t, i) - (double)want[i]) <= tolerance))
            fail_msg("%s[%d]: %.9g, wanted %.9g", name, (int)i, op_get(t, i), (double)want[i]);
}

static void a_hundred_steps_of_transformers(void **state) {
    (void)state;
    for (int matrix = 0; matrix < 2; matrix++) {
        const char *which = matrix ? "matrix" : "vector";
        sn_call c = call(SN_F32, SN_F32, SN_F32, matrix ? ROWS : ELEMENTS, matrix ? COLUMNS : 0);
        for (int64_t i = 0; i < ELEMENTS; i++) op_set(&c.in[0], i, (double)((5 * i) % 17 - 8) / 16);
        for (int k = 2; k < 3 + matrix; k++) memset(c.in[k].data, 0, sn_tensor_bytes(&c.in[k]));
        op_set(&c.in[5], 0, 1);
        for (int step = 1; step <= 100; step++) {
            for (int64_t i = 0; i < ELEMENTS; i++) op_set(&c.in[1], i, (double)((13 * i + 7 * step) % 29 - 14) / 64);
            op_set(&c.in[4], 4, step);
            op_run(&sn_op_adafactor, &c);
            if (step == 1) golden(&c.in[0], which, "w.1", 1e-7);
            if (step == 10) golden(&c.in[0], which, "w.10", 4e-7);
        }
        golden(&c.in[0], which, "w.100", 3e-6);
        golden(&c.in[2], which, matrix ? "exp_avg_sq_row.100" : "exp_avg_sq.100", 1e-7);
        if (matrix) golden(&c.in[3], which, "exp_avg_sq_col.100", 1e-7);
        op_free_call(&c);
    }
}

/* Zero gradients in a row, a column or everywhere: those weights only decay, and nothing becomes infinite. */
static void zero_gradients(void **state) {
    (void)state;
    for (int what = 0; what < 3; what++) {
        sn_call c = call(SN_F32, SN_F32, SN_F32, 20, 30);
        memset(c.in[2].data, 0, sn_tensor_bytes(&c.in[2]));
        memset(c.in[3].data, 0, sn_tensor_bytes(&c.in[3]));
        op_set(&c.in[4], 4, 1);
        for (int64_t i = 0; i < 600; i++) {
            op_set(&c.in[0], i, 1);
            if (what == 2 || (what == 0 && i / 30 == 3) || (what == 1 && i % 30 == 3)) op_set(&c.in[1], i, 0);
        }
        for (int step = 1; step <= 3; step++) {
            op_set(&c.in[4], 4, step);
            op_same_bits(&sn_op_adafactor, &c);
        }
        for (int64_t i = 0; i < 600; i++) {
            assert_true(isfinite(op_get(&c.in[0], i)));
            if (op_get(&c.in[1], i) == 0) assert_true(fabs(op_get(&c.in[0], i) - pow(1 - 1e-3, 3)) < 1e-6);
        }
        op_free_call(&c);
    }
}

static void not_applied(void **state) {
    (void)state;
    for (int64_t columns = 0; columns <= 13; columns += 13) {
        sn_call c = call(SN_F32, SN_F32, SN_BF16, 79, columns), before = call(SN_F32, SN_F32, SN_BF16, 79, columns);
        op_set(&c.in[5], 1, 0);
        op_set(&c.in[5], 0, NAN);
        op_set(&c.in[1], 3, NAN);
        op_same_bits(&sn_op_adafactor, &c);
        const int changed[] = {0, 2, 3, 6};
        for (int k = 0; k < 4; k++)
            if (c.in[changed[k]].data)
                assert_memory_equal(c.in[changed[k]].data, before.in[changed[k]].data, sn_tensor_bytes(&c.in[changed[k]]));
        op_free_call(&c);
        op_free_call(&before);
    }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, 4, 5);
    c.in[3].shape = sn_shape_of(4);
    op_refused(&sn_op_adafactor, &c, 6, "col must be [5], found [4]");
    c.in[2].dtype = SN_BF16;
    op_refused(&sn_op_adafactor, &c, 6, "row must be f32, found bf16");
    op_refused(&sn_op_adafactor, &c, 3, "hyper");
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),     cmocka_unit_test(nothing_to_do), cmocka_unit_test(a_hundred_steps_of_transformers),
        cmocka_unit_test(zero_gradients), cmocka_unit_test(not_applied),   cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
