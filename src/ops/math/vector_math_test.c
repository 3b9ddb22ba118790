/* exp in its three variants, reached through the row functions that are compiled for each processor family. */
#include "ops/math/vector_math.h"

#include <string.h>

#include "base/cpu.h"
#include "ops/linear_cross_entropy/cross_entropy_rows.h"
#include "support/support.h"

static const struct {
    const sn_cross_entropy_rows *rows;
    uint32_t needs;
} families[] = {
    {&sn_cross_entropy_rows_cpu, 0}, {&sn_cross_entropy_rows_avx2, SN_CPU_AVX2}, {&sn_cross_entropy_rows_avx512, SN_CPU_AVX512}};

/* Distance in units in the last place of the true value; exact for infinities and beyond the range. */
static double ulps(float got, double want) {
    if (want >= 0x1.ffffffp127) return isinf(got) ? 0 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    if (exponent < -125) exponent = -125;
    return fabs((double)got - want) / ldexp(1, exponent - 24);
}

static void every_64th_float(void **state) {
    (void)state;
    enum { N = 4096 };
    double worst = 0;
    for (uint64_t at = 0; at < (UINT64_C(1) << 32); at += 64 * N) {
        float x[N], y[3][N];
        for (uint32_t i = 0; i < N; i++) x[i] = sn_bits_f32((uint32_t)at + 64 * i + 17);
        if (!(fabsf(x[0]) < 200) && !(fabsf(x[N - 1]) < 200) && at % (64 * N * 16)) continue; /* all saturated: a few will do */
        for (int f = 0; f < 3; f++) {
            if ((sn_cpu_features() & families[f].needs) != families[f].needs) continue;
            memcpy(y[f], x, sizeof x);
            families[f].rows->softmax(y[f], N - 3, 0, 1, false); /* with a rest that fills no vector */
            for (int i = 0; i < N - 3; i++) {
                if (isnan(x[i])) {
                    assert_true(isnan(y[f][i]));
                } else if (sn_f32_bits(y[f][i]) != sn_f32_bits(y[0][i])) {
                    fail_msg("family %d: exp(%a) = %a, reference %a", f, (double)x[i], (double)y[f][i], (double)y[0][i]);
                }
            }
        }
        for (int i = 0; i < N - 3; i++)
            if (!isnan(x[i])) worst = fmax(worst, ulps(y[0][i], exp((double)x[i])));
    }
    if (!(worst < 0.86)) fail_msg("error of %g units in the last place", worst);
    print_message("exp: at most %.3f units in the last place\n", worst);
}

static void special_values(void **state) {
    (void)state;
    assert_true(sn_exp_f32(0) == 1 && sn_exp_f32(-0.0f) == 1);
    assert_true(sn_exp_f32(INFINITY) == INFINITY && sn_exp_f32(-INFINITY) == 0);
    assert_true(sn_exp_f32(88.72f) < INFINITY && sn_exp_f32(88.73f) == INFINITY);
    assert_true(sn_exp_f32(-103.9f) == 0x1p-149f && sn_exp_f32(-104) == 0);
    assert_true(isnan(sn_exp_f32(NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_64th_float), cmocka_unit_test(special_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
