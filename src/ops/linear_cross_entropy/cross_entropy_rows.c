#include "ops/linear_cross_entropy/cross_entropy_rows.h"

#include "ops/math/vector_math.h"

static float row_max(const float *x, int64_t n) {
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static double sum_exp(const float *x, int64_t n, float max) {
    double lane[16] = {0};
    for (int64_t i = 0; i < n; i++) lane[i % 16] += (double)sn_exp_f32(x[i] - max);
    for (int half = 8; half; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    return lane[0];
}

static void softmax(float *x, int64_t n, float max, float factor, bool bf16) {
    for (int64_t i = 0; i < n; i++) {
        float e = sn_exp_f32(x[i] - max) * factor;
        if (bf16) {
            uint16_t h = sn_f32_to_bf16(e);
            memcpy((char *)x + 2 * i, &h, 2);
        } else {
            x[i] = e;
        }
    }
}

const sn_cross_entropy_rows sn_cross_entropy_rows_cpu = {row_max, sum_exp, softmax};
