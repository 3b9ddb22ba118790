/* safetensors files, read and written, single or sharded.
 * Format: https://github.com/huggingface/safetensors#format
 *
 *     u64 n (little-endian) | header: n bytes of JSON | tensor data
 *     {"__metadata__": {"format": "pt"}, "NAME": {"dtype": "BF16", "shape": [2,3], "data_offsets": [begin, end]}, ...}
 *
 * Offsets count from the end of the header; the tensors must cover the data exactly, without holes or overlap. A scalar
 * (shape []) is [1] here. Tensor data is never loaded: a tensor says where its bytes lie. */
#ifndef SN_IO_SAFETENSORS_H
#define SN_IO_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "io/names.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

typedef struct sn_st_tensor {
    const char *name;
    sn_dtype dtype;
    sn_shape shape;
    uint64_t offset, bytes; /* in the file, from its beginning */
    size_t file;            /* of a folder: index into files; 0 in a single file */
} sn_st_tensor;

typedef struct sn_st_file {
    const char *path;
    int fd;
    uint64_t size;
} sn_st_file;

typedef struct sn_st_metadata {
    const char *key, *value;
} sn_st_metadata;

/* One file, or all shards of a folder. */
typedef struct sn_st {
    sn_st_file *files;
    size_t file_count, file_capacity;
    sn_st_tensor *tensors; /* in the order of the headers */
    size_t tensor_count, tensor_capacity;
    sn_st_metadata *metadata; /* of the first file */
    size_t metadata_count, metadata_capacity;
    sn_names names;
    sn_pool pool;
} sn_st;

/* Malformed: SN_ERR_FORMAT naming the file and tensor. A known type that snug cannot hold (F8_E4M3, ...):
 * SN_ERR_UNSUPPORTED. */
sn_status sn_st_open(const char *path, sn_st *st);

/* A folder with model.safetensors, or with model.safetensors.index.json and its shards; every tensor of the index must
 * be in the shard that it names, and no shard may hold others. `stem` is "model" (or "adapter_model"). */
sn_status sn_st_open_folder(const char *folder, const char *stem, sn_st *st);
void sn_st_close(sn_st *st); /* also a zeroed one */

const sn_st_tensor *sn_st_find(const sn_st *st, const char *name);  /* NULL when absent */
const char *sn_st_metadata_value(const sn_st *st, const char *key); /* NULL when absent */
sn_status sn_st_read(const sn_st *st, const sn_st_tensor *t, uint64_t from, void *data, size_t n);

/* Writing: add metadata and tensors, begin (the layout is then fixed; no data is needed yet), write the tensors' bytes
 * in any order, finish. Files appear under their names only when finish succeeded.
 *
 * One file:  sn_st_write_open("DIR/adapter_model.safetensors", &w).
 * A folder:  sn_st_write_open_folder("DIR", "model", max_bytes, &w) makes model.safetensors, or, when the tensors'
 * bytes exceed max_bytes, model-00001-of-0000N.safetensors and model.safetensors.index.json; a tensor larger than
 * max_bytes gets a shard of its own. */
typedef struct sn_st_out {
    char *path, *temporary;
    int fd;
    uint64_t bytes; /* of data */
} sn_st_out;

typedef struct sn_st_writer {
    char *path, *folder, *stem; /* path: of a single file; else folder and stem */
    uint64_t max_bytes;
    sn_st_tensor *tensors; /* in order of adding; offset and file: once begun */
    uint64_t *written;
    size_t tensor_count, tensor_capacity;
    sn_st_metadata *metadata;
    size_t metadata_count, metadata_capacity;
    sn_st_out *files;
    size_t file_count, file_capacity;
    sn_names names, keys;
    sn_pool pool;
    bool begun, joins;
} sn_st_writer;

sn_status sn_st_write_open(const char *path, sn_st_writer *w);
sn_status sn_st_write_open_folder(const char *folder, const char *stem, uint64_t max_bytes, sn_st_writer *w);
void sn_st_write_close(sn_st_writer *w); /* removes what is unfinished */
sn_status sn_st_add_metadata(sn_st_writer *w, const char *key, const char *value);
/* The tensor's number is its order of adding. SN_ERR_UNSUPPORTED for a type that the format lacks (Q4_1, ...). */
sn_status sn_st_add_tensor(sn_st_writer *w, const char *name, sn_dtype dtype, const sn_shape *shape);
sn_status sn_st_write_begin(sn_st_writer *w);
sn_status sn_st_write(sn_st_writer *w, size_t tensor, uint64_t from, const void *data, size_t n);
sn_status sn_st_write_read(const sn_st_writer *w, size_t tensor, uint64_t from, void *data,
                           size_t n); /* what was written, before finishing */
/* Fails when a tensor lacks bytes (each byte counts once). */
sn_status sn_st_write_finish(sn_st_writer *w);

/* Several processes write one file: one begins and, when the others have left, finishes it; these add the same metadata and
 * tensors, and join in place of begin (between the one's begin and finish, SN_ERR_FILE otherwise), write, and leave, which makes
 * their bytes durable. The one that finishes counts for each tensor what others wrote. */
sn_status sn_st_write_join(sn_st_writer *w);
sn_status sn_st_write_leave(sn_st_writer *w);
void sn_st_write_count(sn_st_writer *w, size_t tensor, uint64_t bytes);

#endif
