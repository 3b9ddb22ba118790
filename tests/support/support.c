#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"

void test_fill(float *x, size_t n, uint32_t seed, float scale) {
    for (size_t i = 0; i < n; i++)
        x[i] = (2 * sn_uniform(sn_philox(seed, 1, (uint32_t)(i / 4), (uint32_t)(i >> 34), 0, 0).v[i % 4]) - 1) * scale;
}

double test_error(const float *a, const float *b, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        double e = fabs((double)a[i] - b[i]) / (1 + fabs((double)b[i]));
        if (!(e <= worst)) worst = isnan(e) ? (a[i] == b[i] ? worst : INFINITY) : e;
    }
    return worst;
}

const char *test_dir(const char *name) {
    static char path[512];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/snug-test-%ld-%s", base ? base : "/tmp", (long)getpid(), name);
    sn_remove_tree(path);
    if (sn_make_dirs(path) != SN_OK) abort();
    return path;
}
