/* Reference: the same blocking with small tiles in scalar code. */
#include <math.h>
#include <string.h>

#include "ops/gemm/gemm_isa.h"
#include "tensor/convert.h"

enum { MR = 4, NR = 8 };

void sn_gemm_pack_steps(const sn_gemm_pack *p, int64_t from, int64_t to, uint32_t *out) {
    int64_t column_stride = p->k_rows ? 1 : p->ld, k_stride = p->k_rows ? p->ld : 1;
    for (int64_t s = from; s < to; s++)
        for (int c = 0; c < p->width; c++) {
            uint32_t cell = 0;
            int64_t index = c * column_stride + (p->pairs ? 2 * s : s) * k_stride;
            if (c < p->valid && p->pairs) {
                const uint16_t *h = p->from;
                cell = h[index];
                if (2 * s + 1 < p->k) cell |= (uint32_t)h[index + k_stride] << 16;
            } else if (c < p->valid) {
                const void *at = (const char *)p->from + index * sn_dtypes[p->form].bytes;
                float f;
                sn_gemm_load_row(p->form, at, 1, 1, &f);
                cell = sn_f32_bits(f);
            }
            out[s * p->width + c] = cell;
        }
}

void sn_gemm_pack_any(const sn_gemm_pack *p, uint32_t *out) { sn_gemm_pack_steps(p, 0, p->pairs ? (p->k + 1) / 2 : p->k, out); }

static void tile(int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh, const float *bias) {
    const float *fa = (const float *)a, *fb = (const float *)b;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float acc = 0;
            for (int64_t k = 0; k < steps; k++) acc = fmaf(fa[k * MR + i], fb[k * NR + j], acc);
            if (!fresh) acc = c[i * ldc + j] + acc;
            c[i * ldc + j] = bias ? acc + bias[j] : acc;
        }
}

static void dots(const float *x, const void *b, int64_t ldb, sn_dtype form, int64_t k, int rows, float *out) {
    for (int r = 0; r < rows; r++) {
        const char *row = (const char *)b + r * ldb * sn_dtypes[form].bytes;
        float lane[16] = {0}, y[16];
        for (int64_t i = 0; i < k; i += 16) {
            int64_t n = k - i < 16 ? k - i : 16;
            memset(y, 0, sizeof y);
            sn_gemm_load_row(form, row + i * sn_dtypes[form].bytes, 1, n, y);
            for (int l = 0; l < 16; l++) lane[l] = fmaf(x[i + l], y[l], lane[l]);
        }
        for (int half = 8; half; half /= 2)
            for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
        out[r] = lane[0];
    }
}

const sn_gemm_isa sn_gemm_cpu = {.mr = MR,
                                 .nr = NR,
                                 .rows_block = 64,
                                 .pack = sn_gemm_pack_any,
                                 .tile = tile,
                                 .dots = dots,
                                 .convert = &sn_convert_cpu,
                                 .store = sn_gemm_store_row};
