#include "ops/subspace/subspace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/small_ops.h"
#include "tensor/convert.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/optimizers/galore.txt"

extern const sn_op sn_op_subspace;

static sn_call call(sn_dtype form, int64_t rows, int64_t columns, int64_t rank, int gap) {
    const int64_t side = rows < columns ? rows : columns;
    sn_call c = {.attrs = {.i = {[SN_SUBSPACE_PARAMETER] = 5, [SN_SUBSPACE_GAP] = gap}}};
    c.in[0] = op_tensor(form, sn_shape_of(rows, columns), 2, 1);
    c.in[1] = op_tensor(SN_F32, sn_shape_of(rank, side), 3, 1);
    c.in[2] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 0.1f, 0.05f, 1, 1, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[3] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){1, 1, 3, 0});
    op_prepare(&sn_op_subspace, &c, 4);
    return c;
}

static void assert_orthonormal(const sn_tensor *p) {
    const int64_t rank = p->shape.d[0], side = p->shape.d[1];
    for (int64_t a = 0; a < rank; a++)
        for (int64_t b = 0; b <= a; b++) {
            double sum = 0;
            for (int64_t i = 0; i < side; i++) sum += op_get(p, a * side + i) * op_get(p, b * side + i);
            if (!(fabs(sum - (a == b)) < 2e-6))
                fail_msg("rows %d and %d of a basis of %d in %d: %g", (int)a, (int)b, (int)rank, (int)side, sum);
        }
}

static void every_shape(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1},    {1, 65, 1},  {63, 1, 1},     {17, 63, 1},   {17, 63, 16},
                                 {17, 63, 17}, {65, 34, 7}, {130, 130, 33}, {33, 1061, 12}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) TEST_EACH_FORM(f) {
            sn_call c = call(test_forms[f], shapes[s][0], shapes[s][1], shapes[s][2], 1);
            op_same_bits(&sn_op_subspace, &c);
            assert_orthonormal(&c.in[1]);
            op_free_call(&c);
        }
}

/* The gradient of the golden script. */
static void set_gradient(sn_tensor *g, int step) {
    static const double weight[] = {4, 3, 2, 1.0 / 512, 1.0 / 1024};
    const int64_t columns = g->shape.d[1];
    for (int64_t i = 0; i < sn_elements(g); i++) {
        double sum = 0;
        for (int k = 0; k < 5; k++)
            sum += weight[k] * ((double)((13 * (i / columns) + 7 * step + 5 * k) % 29 - 14) / 16) *
                   ((double)((11 * (i % columns) + 3 * step + 8 * k) % 31 - 15) / 16);
        op_set(g, i, sum);
    }
}

static double projection(const sn_tensor *p, int64_t i, int64_t k) {
    double sum = 0;
    for (int64_t r = 0; r < p->shape.d[0]; r++) sum += op_get(p, r * p->shape.d[1] + i) * op_get(p, r * p->shape.d[1] + k);
    return sum;
}

/* The subspace of a full SVD; chosen anew in updates 1 and 4 and in no other. */
static void spans_what_svd_says(void **state) {
    (void)state;
    for (int tall = 0; tall < 2; tall++) {
        sn_call c = call(SN_F32, tall ? 19 : 7, tall ? 7 : 19, 3, 3);
        float before[21];
        for (int step = 1; step <= 5; step++) {
            set_gradient(&c.in[0], step);
            op_set(&c.in[2], 4, step);
            memcpy(before, c.in[1].data, sizeof before);
            op_run(&sn_op_subspace, &c);
            if (step != 1 && step != 4) {
                assert_memory_equal(before, c.in[1].data, sizeof before);
                continue;
            }
            char name[64];
            float want[49];
            snprintf(name, sizeof name, "galore.%s.projection.%d", tall ? "19x7" : "7x19", step);
            op_golden(GOLDEN, name, want, 49);
            for (int i = 0; i < 49; i++)
                if (!(fabs(projection(&c.in[1], i / 7, i % 7) - (double)want[i]) < 2e-5))
                    fail_msg("%s[%d]: %.9g, wanted %.9g", name, i, projection(&c.in[1], i / 7, i % 7), (double)want[i]);
        }
        op_free_call(&c);
    }
}

/* Where no gap sets the leading directions apart, the basis still holds nearly as much of the gradient as the best one: with singular
 * values 1, 0.9, 0.81 ... along the axes. */
static void holds_what_there_is(void **state) {
    (void)state;
    enum { SIDE = 60, RANK = 12 };
    sn_call c = call(SN_F32, SIDE, SIDE, RANK, 1);
    double best = 0, held = 0;
    for (int64_t i = 0; i < SIDE * SIDE; i++) op_set(&c.in[0], i, i / SIDE == i % SIDE ? pow(0.9, (double)(i / SIDE)) : 0);
    op_run(&sn_op_subspace, &c);
    for (int i = 0; i < SIDE; i++) {
        best += i < RANK ? pow(0.81, i) : 0;
        held += projection(&c.in[1], i, i) * pow(0.81, i);
    }
    assert_true(held <= best * (1 + 1e-5) && held > 0.98 * best);
    op_free_call(&c);
}

/* Of a gradient of rank 2 (or 0) the basis is whole and holds it; huge and tiny ones have the same basis. */
static void lower_rank_and_scale(void **state) {
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        sn_call c = call(SN_F32, 20, 33, 6, 1);
        for (int64_t i = 0; i < 20 * 33; i++)
            op_set(&c.in[0], i, zero ? 0 : (double)(i / 33) * (double)(i % 33) + (double)((i / 33) % 5) * (double)(i % 33 % 7));
        op_run(&sn_op_subspace, &c);
        assert_orthonormal(&c.in[1]);
        for (int64_t j = 0; j < 33; j++)
            for (int64_t i = 0; i < 20; i++) {
                double sum = 0;
                for (int64_t k = 0; k < 20; k++) sum += projection(&c.in[1], i, k) * op_get(&c.in[0], k * 33 + j);
                if (!(fabs(sum - op_get(&c.in[0], i * 33 + j)) < 5e-3))
                    fail_msg("zero %d: [%d,%d] %.9g, wanted %.9g", zero, (int)i, (int)j, sum,
                             op_get(&c.in[0], i * 33 + j)); /* of up to 600 */
            }
        op_free_call(&c);
    }
    for (int k = 0; k < 2; k++) {
        sn_call c = call(SN_F32, 20, 33, 3, 1), d = call(SN_F32, 20, 33, 3, 1);
        for (int64_t i = 0; i < 20 * 33; i++) op_set(&d.in[0], i, op_get(&c.in[0], i) * (k ? 0x1p60 : 0x1p-60));
        op_run(&sn_op_subspace, &c);
        op_run(&sn_op_subspace, &d);
        assert_orthonormal(&d.in[1]);
        for (int64_t i = 0; i < 60; i++) assert_true(fabs(op_get(&c.in[1], i) - op_get(&d.in[1], i)) < 1e-5);
        op_free_call(&c);
        op_free_call(&d);
    }
}

static void not_applied(void **state) {
    (void)state;
    sn_call c = call(SN_F32, 9, 12, 4, 1), before = call(SN_F32, 9, 12, 4, 1);
    op_set(&c.in[0], 3, NAN);
    op_set(&c.in[3], 1, 0);
    op_run(&sn_op_subspace, &c);
    assert_memory_equal(c.in[1].data, before.in[1].data, sn_tensor_bytes(&c.in[1]));
    op_free_call(&c);
    op_free_call(&before);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, 9, 12, 4, 1);
    c.attrs.i[SN_SUBSPACE_GAP] = 0;
    op_refused(&sn_op_subspace, &c, 4, "gap must be 1 or more updates, found 0");
    c.in[1].shape = sn_shape_of(10, 9);
    op_refused(&sn_op_subspace, &c, 4, "p must be [1 to 9, 9] to go with g [9, 12], found [10, 9]");
    c.in[1].shape = sn_shape_of(4, 12);
    op_refused(&sn_op_subspace, &c, 4, "found [4, 12]");
    c.in[1].shape = sn_shape_of(4, 9);
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_shape),         cmocka_unit_test(spans_what_svd_says),
                                       cmocka_unit_test(holds_what_there_is), cmocka_unit_test(lower_rank_and_scale),
                                       cmocka_unit_test(not_applied),         cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
