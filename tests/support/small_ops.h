/* What the tests of the small ops share: shapes, forms and the inputs of tests/golden/make_smallops.py. */
#ifndef SN_TESTS_SMALL_OPS_H
#define SN_TESTS_SMALL_OPS_H

#include "support/op_call.h"

#define TEST_GOLDEN SNUG_SOURCE_DIR "/tests/golden/smallops/golden.txt"

enum { TEST_ROWS = 5, TEST_COLUMNS = 33, TEST_PARAMETERS = 37 };

static const sn_dtype test_forms[] = {SN_F32, SN_BF16, SN_F16};
static const int64_t test_shapes[][2] = {{0, 5}, {1, 1}, {3, 0}, {2, 16}, {17, 7}, {37, 33}, {5, 576}, {3, 1061}};

#define TEST_EACH_FORM(f) for (size_t f = 0; f < sizeof test_forms / sizeof test_forms[0]; f++)
#define TEST_EACH_SHAPE(s) for (size_t s = 0; s < sizeof test_shapes / sizeof test_shapes[0]; s++)

/* fractions() of the golden script. */
static inline sn_tensor test_fractions(sn_shape shape, int64_t a, int64_t b, int64_t modulus, double divisor) {
    sn_tensor t = op_tensor(SN_F32, shape, 0, 0);
    for (int64_t i = 0; i < sn_elements(&t); i++) op_set(&t, i, (double)((a * i + b) % modulus - modulus / 2) / divisor);
    return t;
}

/* Fails unless t is the golden line `name` within `tolerance` relative to 1 + |value|. */
static inline void test_is_golden(const sn_tensor *t, const char *name, double tolerance) {
    float want[TEST_ROWS * TEST_COLUMNS];
    double wide[TEST_ROWS * TEST_COLUMNS];
    const int64_t n = sn_elements(t);
    assert_true(n > 0 && n <= TEST_ROWS * TEST_COLUMNS);
    op_golden(TEST_GOLDEN, name, want, n);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)want[i];
    const double error = op_tensor_error(t, wide);
    if (!(error <= tolerance)) fail_msg("%s: error %g, at most %g is wanted", name, error, tolerance);
}

#endif
