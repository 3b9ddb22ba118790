#include "support/small_ops.h"

#include <math.h>

#include "ops/clip_factor/clip_factor.h"

extern const sn_op sn_op_clip_factor;

/* {factor, applied, norm, 0} for these sums of squares. */
static void clip(const double *sums, int64_t n, float inv_scale, double max_norm, double out[4]) {
    sn_call c = {.attrs = {.f = {[SN_CLIP_FACTOR_MAX_NORM] = max_norm}}};
    c.in[0] = op_tensor(SN_F64, sn_shape_of(n), 0, 0);
    for (int64_t i = 0; i < n; i++) op_set(&c.in[0], i, sums[i]);
    c.in[1] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1, 1, 1, inv_scale, 0, 0, 0, 0});
    op_prepare(&sn_op_clip_factor, &c, 2);
    op_same_bits(&sn_op_clip_factor, &c);
    for (int i = 0; i < 4; i++) out[i] = op_get(&c.out[0], i);
    op_free_call(&c);
}

static void factors(void **state) {
    (void)state;
    double out[4];
    clip((double[]){9, 16}, 2, 1, 1, out); /* the norm reported is the one before clipping */
    assert_true(out[2] == 5 && out[1] == 1 && out[3] == 0);
    assert_true(fabs(out[0] - 1 / (5 + 1e-6)) < 1e-7);
    clip((double[]){9, 16}, 2, 1, 10, out);
    assert_true(out[0] == 1 && out[1] == 1 && out[2] == 5);
    clip((double[]){9, 16}, 2, 1, 0, out); /* no clipping */
    assert_true(out[0] == 1 && out[1] == 1 && out[2] == 5);
    clip((double[]){9 * 256.0 * 256, 16 * 256.0 * 256}, 2, 1 / 256.0f, 1, out); /* of scaled gradients */
    assert_true(out[2] == 5 && fabs(out[0] * 256 - 1 / (5 + 1e-6)) < 1e-7);
    clip((double[]){0}, 1, 1, 1, out);
    assert_true(out[0] == 1 && out[1] == 1 && out[2] == 0);
    clip(NULL, 0, 0.5f, 1, out); /* nothing to update */
    assert_true(out[0] == 0.5 && out[1] == 1 && out[2] == 0);
}

static void overflow_applies_nothing(void **state) {
    (void)state;
    double out[4];
    for (int k = 0; k < 2; k++) {
        clip((double[]){9, k ? INFINITY : NAN, 16}, 3, 1, 1, out);
        assert_true(out[0] == 0 && out[1] == 0 && !isfinite(out[2]));
    }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F64, .shape = sn_shape_of(3)}, {.dtype = SN_F32, .shape = sn_shape_of(4)}}};
    op_refused(&sn_op_clip_factor, &c, 2, "hyper must be [8], found [4]");
    c.in[1].shape = sn_shape_of(8);
    c.attrs.f[SN_CLIP_FACTOR_MAX_NORM] = -1;
    op_refused(&sn_op_clip_factor, &c, 2, "found -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(factors), cmocka_unit_test(overflow_applies_nothing), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
