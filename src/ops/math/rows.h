/* Loops over rows and pieces of activations, in f32 whatever the form.
 *
 * Files that hold loops (NAME_loops.h) are compiled once for each processor feature: the loops below are written so that
 * the compiler makes vectors of them, and so that every variant gives the same bits: no fused multiply-add that is not
 * written out, and sums over SN_LANES fixed partial sums. */
#ifndef SN_OPS_MATH_ROWS_H
#define SN_OPS_MATH_ROWS_H

#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "base/cpu.h"
#include "program/kernel.h"
#include "tensor/convert.h"

enum {
    SN_BLOCK = 16,          /* iterations of one block of SN_EACH */
    SN_LANES = 32,          /* partial sums of a reduction */
    SN_PIECE = 1024,        /* elements that are widened at a time; a multiple of SN_LANES */
    SN_TASK = 16 * SN_PIECE /* elements of one task of an elementwise op */
};

/* for (i = 0; i < n; i++) body, in blocks of SN_BLOCK, which become vectors. No iteration may depend on another; arrays
 * that overlap must be equal. */
#define SN_EACH(i, n, ...)                                                            \
    do {                                                                              \
        const int64_t n_##i = (n);                                                    \
        int64_t at_##i = 0;                                                           \
        for (; at_##i + SN_BLOCK <= n_##i; at_##i += SN_BLOCK) {                      \
            _Pragma("GCC ivdep") for (int64_t l_##i = 0; l_##i < SN_BLOCK; l_##i++) { \
                const int64_t i = at_##i + l_##i;                                     \
                __VA_ARGS__                                                           \
            }                                                                         \
        }                                                                             \
        for (int64_t i = at_##i; i < n_##i; i++) { __VA_ARGS__ }                      \
    } while (0)

/* partial[l] += expression of i for every i with i % SN_LANES == l, i rising. */
#define SN_SUM(partial, i, n, ...)                                                       \
    do {                                                                                 \
        const int64_t n_##i = (n);                                                       \
        int64_t at_##i = 0;                                                              \
        for (; at_##i + SN_LANES <= n_##i; at_##i += SN_LANES) {                         \
            for (int64_t l_##i = 0; l_##i < SN_LANES; l_##i++) {                         \
                const int64_t i = at_##i + l_##i;                                        \
                (partial)[l_##i] += (__VA_ARGS__);                                       \
            }                                                                            \
        }                                                                                \
        for (int64_t i = at_##i; i < n_##i; i++) (partial)[i - at_##i] += (__VA_ARGS__); \
    } while (0)

/* The sum of SN_LANES partial sums, by halves. */
static inline float sn_lanes_f32(float *partial) {
    for (int width = SN_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) partial[l] += partial[l + width];
    return partial[0];
}
static inline double sn_lanes_f64(double *partial) {
    for (int width = SN_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) partial[l] += partial[l + width];
    return partial[0];
}

/* Address of element i of a tensor whose form has no blocks. */
static inline char *sn_element(const sn_tensor *t, int64_t i) { return (char *)t->data + i * sn_dtypes[t->dtype].bytes; }

/* n <= SN_PIECE elements as f32: the elements themselves, or widened into `buffer`. */
static inline const float *sn_load_f32(sn_dtype t, const void *from, int64_t n, float *buffer) {
    if (t == SN_F32) return from;
    const uint16_t *h = from;
    if (t == SN_BF16) {
        SN_EACH(i, n, buffer[i] = sn_bf16_to_f32(h[i]););
        return buffer;
    }
#ifdef __F16C__
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(buffer + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
    for (; i < n; i++) buffer[i] = _cvtsh_ss(h[i]);
#else
    for (int64_t i = 0; i < n; i++) buffer[i] = sn_f16_to_f32(h[i]);
#endif
    return buffer;
}

/* Where results may be written: the destination itself when it is f32, else `buffer`. */
static inline float *sn_result_f32(sn_dtype t, void *to, float *buffer) { return t == SN_F32 ? to : buffer; }

/* Rounds n results (nearest even) from where sn_result_f32 put them. */
static inline void sn_store_f32(sn_dtype t, const float *x, int64_t n, void *to) {
    if (t == SN_F32) {
        if ((const void *)x != to) memcpy(to, x, (size_t)n * 4);
        return;
    }
    uint16_t *h = to;
    if (t == SN_BF16) {
        SN_EACH(i, n, uint32_t u = sn_f32_bits(x[i]); uint32_t nan = u >> 16 | 0x40; uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
                h[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded););
        return;
    }
#ifdef __F16C__
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(h + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
    for (; i < n; i++) h[i] = _cvtss_sh(x[i], 0);
#else
    for (int64_t i = 0; i < n; i++) h[i] = sn_f32_to_f16(x[i]);
#endif
}

static inline int64_t sn_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t sn_tasks(int64_t n, int64_t each) { return (n + each - 1) / each; }

/* The pieces [first, first + count) of task `task` of an elementwise op over n elements. */
#define SN_EACH_PIECE(first, count, task, n)                                                                                  \
    for (int64_t first = (task)*SN_TASK, end_ = sn_min_i64(first + SN_TASK, (n)), count = sn_min_i64(SN_PIECE, end_ - first); \
         first < end_; first += count, count = sn_min_i64(SN_PIECE, end_ - first))

/* One table of one kernel. */
#define SN_ONE_KERNEL(table, title, features, scratch_fn, run_fn) \
    const sn_kernel table[] = {                                   \
        {.name = title, .device = SN_DEVICE_CPU, .needs = features, .takes = NULL, .scratch = scratch_fn, .run = run_fn}, {.name = NULL}}

#endif
