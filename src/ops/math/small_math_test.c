#include "support/support.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "ops/math/expf.h"
#include "ops/math/random.h"

static void exp_to_the_last_place(void **state) {
    (void)state;
    double worst = 0;
    for (float x = -87; x < 88.7f; x += 0.00037f) {
        const double want = exp((double)x), error = fabs((double)sn_expf(x) - want) / want * 0x1p23;
        if (error > worst) worst = error;
    }
    assert_true(worst < 1.5);
    assert_true(sn_expf(0) == 1);
    assert_true(sn_expf(-0.0f) == 1);
    assert_true(sn_expf(-INFINITY) == 0);
    assert_true(sn_expf(-105) == 0);
    assert_true(sn_expf(-1e30f) == 0);
    assert_true(isinf(sn_expf(INFINITY)) && isinf(sn_expf(89)) && isinf(sn_expf(1e30f)));
    assert_true(isnan(sn_expf(NAN)) && isnan(sn_expf(-NAN)));
    assert_true(fabs((double)sn_expf(-100) / exp(-100.0) - 1) < 0.03); /* a subnormal result */
}

static void words_are_philox(void **state) {
    (void)state;
    const int64_t firsts[] = {0, 1, 2, 3, 4, 777, INT64_C(17179869183) - 5};
    const int64_t counts[] = {1, 3, 64, SN_PIECE - 1, SN_PIECE};
    const sn_random update = {.key = {1, 2}, .c = {3, 4, 0, 0}, .low = 2, .high = 3};
    uint32_t buffer[SN_PIECE + 8 * SN_RANDOM_BLOCK];
    for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++)
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            const uint32_t *words = sn_random_words(&update, firsts[f], counts[k], buffer);
            for (int64_t i = 0; i < counts[k]; i++) {
                const uint64_t e = (uint64_t)(firsts[f] + i);
                assert_int_equal(words[i], sn_philox(1, 2, 3, 4, (uint32_t)(e / 4), (uint32_t)(e >> 34)).v[e % 4]);
            }
            assert_true(words + counts[k] <= buffer + sizeof buffer / sizeof buffer[0]);
        }
}

/* Not inlined: with a constant n, gcc 12 warns about an index that cannot occur. */
__attribute__((noinline)) static void round_stochastically(const float *x, const uint32_t *words, int64_t n, uint16_t *to) {
    sn_store_stochastic_bf16(x, words, n, to);
}

static void stochastic_rounding(void **state) {
    (void)state;
    const sn_random source = {.key = {5, 6}, .c = {0, 0, 0, 0}, .low = 2, .high = 3};
    uint32_t buffer[SN_PIECE + 8 * SN_RANDOM_BLOCK];
    float x[SN_PIECE];
    uint16_t h[SN_PIECE];
    for (int i = 0; i < SN_PIECE; i++) x[i] = 1 + 0x1p-7f / 4; /* a quarter of the way to the next bf16 */
    int up = 0;
    for (int round = 0; round < 64; round++) {
        round_stochastically(x, sn_random_words(&source, round * SN_PIECE, SN_PIECE, buffer), SN_PIECE, h);
        for (int i = 0; i < SN_PIECE; i++) {
            assert_true(h[i] == 0x3f80 || h[i] == 0x3f81);
            up += h[i] == 0x3f81;
        }
    }
    assert_true(abs(up - 16384) < 600); /* five standard deviations */
    const float special[SN_BLOCK] = {NAN, INFINITY, -INFINITY, 0, -0.0f, sn_bits_f32(0x7fffffff), 1.5f};
    uint32_t ones[SN_BLOCK];
    for (int i = 0; i < SN_BLOCK; i++) ones[i] = UINT32_MAX;
    round_stochastically(special, ones, SN_BLOCK, h);
    assert_true(isnan(sn_bf16_to_f32(h[0])) && isnan(sn_bf16_to_f32(h[5])));
    assert_int_equal(h[1], 0x7f80);
    assert_int_equal(h[2], 0xff80);
    assert_int_equal(h[3], 0);
    assert_int_equal(h[4], 0x8000);
    assert_int_equal(h[6], 0x3fc0); /* exact values stay */
}

static void sums_by_lanes(void **state) {
    (void)state;
    float x[100], partial[SN_LANES] = {0};
    for (int i = 0; i < 100; i++) x[i] = (float)i;
    SN_SUM(partial, i, 100, x[i]);
    assert_true(partial[0] == 0 + 32 + 64 + 96 && partial[3] == 3 + 35 + 67 + 99 && partial[4] == 4 + 36 + 68);
    assert_true(sn_lanes_f32(partial) == 4950);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exp_to_the_last_place), cmocka_unit_test(words_are_philox),
                                       cmocka_unit_test(stochastic_rounding), cmocka_unit_test(sums_by_lanes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
