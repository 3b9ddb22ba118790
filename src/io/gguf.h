/* GGUF files (versions 2 and 3, little-endian): metadata and tensor table, read and written.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 *     header      "GGUF", u32 version, u64 tensors, u64 keys
 *     metadata    keys x { string key, u32 type, value }        string: u64 bytes, bytes
 *     tensor table  tensors x { string name, u32 dims, u64 extent[dims], u32 type, u64 offset }
 *     padding to general.alignment (32)
 *     tensor data, each tensor at its offset from here
 *
 * A file's extents stand innermost first; shapes here are row-major (outermost first), so {576, 49152} in the file is
 * [49152,576]. Tensor data is never loaded: a tensor says where its bytes lie. Arrays are read when asked for.
 *
 * Every length in a file is checked against the file's size before it is used: memory stays below the file's size,
 * and a malformed file is SN_ERR_FORMAT naming the key or tensor. */
#ifndef SN_IO_GGUF_H
#define SN_IO_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "io/names.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

/*    id       bytes  name */
#define SN_GGUF_TYPE_LIST(X) \
    X(U8, 1, "u8")           \
    X(I8, 1, "i8")           \
    X(U16, 2, "u16")         \
    X(I16, 2, "i16")         \
    X(U32, 4, "u32")         \
    X(I32, 4, "i32")         \
    X(F32, 4, "f32")         \
    X(BOOL, 1, "bool")       \
    X(STRING, 0, "string")   \
    X(ARRAY, 0, "array")     \
    X(U64, 8, "u64")         \
    X(I64, 8, "i64")         \
    X(F64, 8, "f64")

typedef enum sn_gguf_type {
#define X(id, bytes, name) SN_GGUF_##id,
    SN_GGUF_TYPE_LIST(X)
#undef X
        SN_GGUF_TYPE_COUNT
} sn_gguf_type;

typedef struct sn_gguf_kv {
    const char *key;
    sn_gguf_type type, item_type; /* item_type: of an array */
    uint64_t count;               /* array: items; string: bytes; else 1 */
    uint64_t offset, bytes;       /* the value in the file, after its type (array: after item type and count) */
    const char *string;           /* string: its text, NUL-terminated; else NULL */
    uint8_t scalar[8];            /* any other scalar, as in the file */
} sn_gguf_kv;

typedef struct sn_gguf_tensor {
    const char *name;
    sn_dtype dtype;
    sn_shape shape;         /* row-major */
    uint64_t offset, bytes; /* in the file, from its beginning */
} sn_gguf_tensor;

typedef struct sn_gguf {
    char *path;
    int fd;
    uint64_t size;
    uint32_t version, alignment;
    sn_gguf_kv *kv;
    size_t kv_count, kv_capacity;
    sn_gguf_tensor *tensors; /* in the file's order */
    size_t tensor_count, tensor_capacity;
    uint64_t data_start; /* of the tensor data */
    sn_names keys, names;
    sn_pool pool;
} sn_gguf;

sn_status sn_gguf_open(const char *path, sn_gguf *g);
void sn_gguf_close(sn_gguf *g); /* also a zeroed one */

const sn_gguf_kv *sn_gguf_find(const sn_gguf *g, const char *key); /* NULL when absent */
const sn_gguf_tensor *sn_gguf_find_tensor(const sn_gguf *g, const char *name);

/* Typed getters. An absent key or another type is SN_ERR_FORMAT "FILE: key K: wanted T, found U". Integers of any
 * width and sign are taken when the value fits; floats from f32 and f64 (an f32 becomes the double with its shortest
 * decimal, so 1e-5 stays 1e-5). Strings live as long as the file is open. */
sn_status sn_gguf_get_u32(const sn_gguf *g, const char *key, uint32_t *out);
sn_status sn_gguf_get_u64(const sn_gguf *g, const char *key, uint64_t *out);
sn_status sn_gguf_get_i64(const sn_gguf *g, const char *key, int64_t *out);
sn_status sn_gguf_get_f64(const sn_gguf *g, const char *key, double *out);
sn_status sn_gguf_get_bool(const sn_gguf *g, const char *key, bool *out);
sn_status sn_gguf_get_string(const sn_gguf *g, const char *key, const char **out);

/* Arrays, read from the file into one block (sn_free it). Strings are NUL-terminated; both lie in that block.
 * The i32 and f32 forms want exactly that item type (i32 also takes u32, and i8..u16, when the values fit). */
typedef struct sn_gguf_string {
    const char *text;
    size_t size;
} sn_gguf_string;
sn_status sn_gguf_get_strings(const sn_gguf *g, const char *key, sn_gguf_string **out, size_t *count);
sn_status sn_gguf_get_i32s(const sn_gguf *g, const char *key, int32_t **out, size_t *count);
sn_status sn_gguf_get_f32s(const sn_gguf *g, const char *key, float **out, size_t *count);

/* n bytes of a tensor from byte `from` of it. */
sn_status sn_gguf_read(const sn_gguf *g, const sn_gguf_tensor *t, uint64_t from, void *data, size_t n);

const char *sn_gguf_type_name(uint32_t type); /* "u32"; "?" when unknown */
const char *sn_ggml_type_name(uint32_t type); /* ggml's tensor types: "IQ2_XXS"; NULL when unknown */

/* Writing: add keys and tensors, then begin (the layout is then fixed), then write the tensors' bytes in any order,
 * then finish. The file appears under its name only when finish succeeded; until then it is PATH.tmp. */
typedef struct sn_gguf_writer {
    char *path, *temporary;
    int fd;
    uint32_t alignment;
    sn_str metadata;
    uint64_t kv_count;
    sn_gguf_tensor *tensors; /* offset: absolute once begun */
    uint64_t *written;       /* bytes of each tensor so far */
    size_t tensor_count, tensor_capacity;
    uint64_t data_start, size;
    sn_names keys, names;
} sn_gguf_writer;

/* alignment: 0 for the format's 32, else a power of two from 8 to 1 MiB. */
sn_status sn_gguf_write_open(const char *path, uint32_t alignment, sn_gguf_writer *w);
void sn_gguf_write_close(sn_gguf_writer *w); /* removes an unfinished file */

/* A key that was added before is SN_ERR_USAGE. general.alignment is the writer's own. */
sn_status sn_gguf_add_u32(sn_gguf_writer *w, const char *key, uint32_t value);
sn_status sn_gguf_add_i32(sn_gguf_writer *w, const char *key, int32_t value);
sn_status sn_gguf_add_u64(sn_gguf_writer *w, const char *key, uint64_t value);
sn_status sn_gguf_add_f32(sn_gguf_writer *w, const char *key, float value);
sn_status sn_gguf_add_bool(sn_gguf_writer *w, const char *key, bool value);
sn_status sn_gguf_add_string(sn_gguf_writer *w, const char *key, const char *text, size_t size);
sn_status sn_gguf_add_strings(sn_gguf_writer *w, const char *key, const sn_gguf_string *items, size_t count);
sn_status sn_gguf_add_i32s(sn_gguf_writer *w, const char *key, const int32_t *items, size_t count);
sn_status sn_gguf_add_f32s(sn_gguf_writer *w, const char *key, const float *items, size_t count);
sn_status sn_gguf_add_copy(sn_gguf_writer *w, const sn_gguf *from, const sn_gguf_kv *kv); /* any type, byte for byte */

/* shape is row-major, rank 1 to 4. The tensor's number is its order of adding. */
sn_status sn_gguf_add_tensor(sn_gguf_writer *w, const char *name, sn_dtype dtype, const sn_shape *shape);
sn_status sn_gguf_write_begin(sn_gguf_writer *w);
sn_status sn_gguf_write(sn_gguf_writer *w, size_t tensor, uint64_t from, const void *data, size_t n);
/* Fails when a tensor lacks bytes (each byte counts once). */
sn_status sn_gguf_write_finish(sn_gguf_writer *w);

#endif
