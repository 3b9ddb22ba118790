/* Work on one row of logits, for one processor family. Included by the kernels of linear_cross_entropy only. */
#ifndef SN_OPS_LINEAR_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_H
#define SN_OPS_LINEAR_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sn_cross_entropy_rows {
    float (*max)(const float *x, int64_t n); /* n >= 1 */
    /* Sum of exp(x - max) in the order of linear_cross_entropy.h. */
    double (*sum_exp)(const float *x, int64_t n, float max);
    /* x = exp(x - max) * factor, in place; bf16: as bf16 from the row's first byte on. */
    void (*softmax)(float *x, int64_t n, float max, float factor, bool bf16);
} sn_cross_entropy_rows;

extern const sn_cross_entropy_rows sn_cross_entropy_rows_cpu, sn_cross_entropy_rows_avx2, sn_cross_entropy_rows_avx512;

#endif
