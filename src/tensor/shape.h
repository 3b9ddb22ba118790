/* Shapes and tensors: plain data. A tensor is contiguous and row-major; its last dimension is the row. */
#ifndef SN_TENSOR_SHAPE_H
#define SN_TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

enum { SN_MAX_DIMS = 5 };

typedef struct sn_shape {
    int rank; /* 0 .. SN_MAX_DIMS; a scalar is rank 1 of extent 1 throughout snug */
    int64_t d[SN_MAX_DIMS];
} sn_shape;

typedef struct sn_tensor {
    void *data; /* NULL while planning */
    sn_dtype dtype;
    sn_shape shape;
} sn_tensor;

/* sn_shape_of(512, 576) */
#define sn_shape_of(...) sn_shape_from((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
sn_shape sn_shape_from(int rank, const int64_t *d);

bool sn_shape_equal(const sn_shape *a, const sn_shape *b);
bool sn_shape_elements(const sn_shape *s, int64_t *out); /* false on overflow or a negative extent */
bool sn_shape_bytes(const sn_shape *s, sn_dtype t, size_t *out);
const char *sn_shape_text(const sn_shape *s, char buffer[96]); /* "[512,576]" */

/* For shapes that were checked already: elements, and rows x columns with the last dimension as columns. */
static inline int64_t sn_elements(const sn_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->shape.rank; i++) n *= t->shape.d[i];
    return n;
}
static inline int64_t sn_cols(const sn_tensor *t) { return t->shape.rank ? t->shape.d[t->shape.rank - 1] : 1; }
static inline int64_t sn_rows(const sn_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i + 1 < t->shape.rank; i++) n *= t->shape.d[i];
    return n;
}
static inline size_t sn_row_bytes(const sn_tensor *t) {
    return (size_t)(sn_cols(t) / sn_dtypes[t->dtype].block) * (size_t)sn_dtypes[t->dtype].bytes;
}
static inline size_t sn_tensor_bytes(const sn_tensor *t) { return (size_t)sn_rows(t) * sn_row_bytes(t); }

#endif
