/* What gemm.c needs of one processor family. Included by gemm*.c only. */
#ifndef SN_OPS_GEMM_GEMM_ISA_H
#define SN_OPS_GEMM_GEMM_ISA_H

#include "ops/cast/convert_isa.h"
#include "ops/gemm/gemm.h"

enum { SN_GEMM_MAX_MR = 16, SN_GEMM_MAX_NR = 32, SN_GEMM_DOTS = 4 };

/* A packed panel: for each step, `width` cells of 4 bytes. A cell is one f32, or with pairs two bf16 (even k in the low half;
 * an odd K is padded with zero). Cells beyond the valid columns hold finite or repeated values that nobody stores. */
typedef struct sn_gemm_pack {
    const void *from; /* element (first k, first column) */
    int64_t ld;       /* elements between stored rows */
    sn_dtype form;    /* f32, bf16, f16 */
    bool k_rows;      /* stored rows run over k (columns contiguous); else each stored row is a column, k contiguous */
    bool pairs;       /* make cells of bf16 pairs; form is bf16 */
    int width, valid;
    int64_t k; /* how many k; even with pairs, except at the end of K */
} sn_gemm_pack;

struct sn_gemm_isa {
    int mr, nr;
    int rows_block; /* rows of A that are run against one panel of B before the next */
    bool pairs;     /* bf16 x bf16 by pairs */
    void (*pack)(const sn_gemm_pack *p, uint32_t *out);
    /* c[m][n] (m <= mr, n <= nr) = panels' product, a chain from 0 (added to c unless fresh) (+ bias). a, b: packed, b aligned to 64. bias
     * may be NULL. */
    void (*tile)(int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh, const float *bias);
    void (*tile_pairs)(int64_t steps, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, int m, int n, bool fresh,
                       const float *bias);
    /* out[r] = x . row r of b, rows <= SN_GEMM_DOTS, in the lane order of gemm.h. x is padded with zeros to a multiple of 16. */
    void (*dots)(const float *x, const void *b, int64_t ldb, sn_dtype form, int64_t k, int rows, float *out);
    const sn_convert_isa *convert;                                        /* decodes block formats, with the bits of sn_to_f32 */
    void (*store)(sn_dtype form, const float *row, int64_t n, void *out); /* f32 row to f32, bf16 or f16, nearest even */
};

/* Values of one row to or from f32, in scalar code. */
void sn_gemm_load_row(sn_dtype form, const void *from, int64_t stride, int64_t n, float *out);
void sn_gemm_store_row(sn_dtype form, const float *row, int64_t n, void *out);

/* The packing of any case, and steps [from, to) of it, in scalar code. */
void sn_gemm_pack_any(const sn_gemm_pack *p, uint32_t *out);
void sn_gemm_pack_steps(const sn_gemm_pack *p, int64_t from, int64_t to, uint32_t *out);

#endif
