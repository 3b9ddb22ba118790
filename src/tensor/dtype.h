/* Element types and block formats: the forms in which a value can be kept.
 *
 * A block format stores `block` consecutive elements of a row in `bytes` bytes; a row must be a whole number of
 * blocks. The quantised formats are GGUF's, bit for bit (ggml's type numbers stand in the `gguf` column; -1: GGUF
 * has no such type). `st` is the name in a safetensors header, NULL where that format has none. */
#ifndef SN_TENSOR_DTYPE_H
#define SN_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*    id     name     block bytes gguf  st     */
#define SN_DTYPE_LIST(X)                \
    X(F32, "f32", 1, 4, 0, "F32")       \
    X(F16, "f16", 1, 2, 1, "F16")       \
    X(BF16, "bf16", 1, 2, 30, "BF16")   \
    X(F64, "f64", 1, 8, 28, "F64")      \
    X(I8, "i8", 1, 1, 24, "I8")         \
    X(I16, "i16", 1, 2, 25, "I16")      \
    X(I32, "i32", 1, 4, 26, "I32")      \
    X(I64, "i64", 1, 8, 27, "I64")      \
    X(U8, "u8", 1, 1, -1, "U8")         \
    X(U32, "u32", 1, 4, -1, "U32")      \
    X(Q4_0, "q4_0", 32, 18, 2, NULL)    \
    X(Q4_1, "q4_1", 32, 20, 3, NULL)    \
    X(Q5_0, "q5_0", 32, 22, 6, NULL)    \
    X(Q5_1, "q5_1", 32, 24, 7, NULL)    \
    X(Q8_0, "q8_0", 32, 34, 8, NULL)    \
    X(Q8_1, "q8_1", 32, 36, 9, NULL)    \
    X(Q2_K, "q2_k", 256, 84, 10, NULL)  \
    X(Q3_K, "q3_k", 256, 110, 11, NULL) \
    X(Q4_K, "q4_k", 256, 144, 12, NULL) \
    X(Q5_K, "q5_k", 256, 176, 13, NULL) \
    X(Q6_K, "q6_k", 256, 210, 14, NULL) \
    X(Q8_K, "q8_k", 256, 292, 15, NULL)

typedef enum sn_dtype {
#define X(id, name, block, bytes, gguf, st) SN_##id,
    SN_DTYPE_LIST(X)
#undef X
        SN_DTYPE_COUNT
} sn_dtype;

typedef struct sn_dtype_info {
    const char *name;
    int block, bytes; /* elements and bytes of one block */
    int gguf;         /* ggml type number, or -1 */
    const char *st;   /* safetensors name, or NULL */
} sn_dtype_info;

extern const sn_dtype_info sn_dtypes[SN_DTYPE_COUNT];

const char *sn_dtype_name(sn_dtype t);
bool sn_dtype_by_name(const char *name, sn_dtype *out); /* "bf16", "q4_1" */
bool sn_dtype_by_gguf(uint32_t type, sn_dtype *out);
bool sn_dtype_by_safetensors(const char *name, sn_dtype *out); /* "BF16" */
static inline bool sn_dtype_is_quantised(sn_dtype t) { return t >= SN_Q4_0; }
static inline bool sn_dtype_is_float(sn_dtype t) { return t == SN_F32 || t == SN_F16 || t == SN_BF16; }

/* Bytes of a row of n elements; false when n is no whole number of blocks or the size does not fit. */
bool sn_dtype_row_bytes(sn_dtype t, int64_t n, size_t *out);

#endif
