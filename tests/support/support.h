/* What tests share: cmocka with its required includes, and a seeded random source. */
#ifndef SN_TESTS_SUPPORT_H
#define SN_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

/* Fails the test with the library's message when the call does not return SN_OK. */
#define assert_ok(expr)                                                                                 \
    do {                                                                                                \
        sn_status status_ = (expr);                                                                     \
        if (status_ != SN_OK) fail_msg("%s: %s (%s)", #expr, sn_error_text(), sn_status_name(status_)); \
    } while (0)

/* Deterministic numbers in [-scale, scale). */
void test_fill(float *x, size_t n, uint32_t seed, float scale);

/* Largest |a - b| / (1 + |b|); infinity when either is not finite and they differ. */
double test_error(const float *a, const float *b, size_t n);

/* A fresh folder below the build tree, removed and made anew; sn_free nothing. */
const char *test_dir(const char *name);

#endif
