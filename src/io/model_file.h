/* A model on disk, whatever its format: its config and its tensors under Hugging Face names.
 *
 * A path is a GGUF file, or a Hugging Face folder with config.json and model.safetensors (or its shards and index). A
 * tensor's shape is Hugging Face's; where its bytes lie and how a GGUF arranges them differently stands beside it, and
 * sn_model_files_read undoes that. Opening reads headers only. */
#ifndef SN_IO_MODEL_FILE_H
#define SN_IO_MODEL_FILE_H

#include "io/gguf.h"
#include "io/model_config.h"
#include "io/names.h"
#include "io/safetensors.h"

typedef struct sn_model_tensor {
    const char *name;      /* Hugging Face's: model.layers.0.self_attn.q_proj.weight */
    const char *file_name; /* in the file: blk.0.attn_q.weight */
    sn_dtype dtype;
    sn_shape shape; /* Hugging Face's */
    int fd;
    const char *path;
    uint64_t offset, bytes; /* in that file */
    int64_t row_heads;      /* > 0: the stored rows are permuted within each of so many heads (io/model_names.h) */
    bool transposed;        /* stored as [out,in], while shape is [in,out] */
} sn_model_tensor;

typedef struct sn_model_files {
    sn_model_config config;
    sn_model_tensor *tensors; /* embeddings, layer by layer, final norm, lm_head */
    size_t tensor_count;
    bool is_gguf;
    bool lm_head_beside_tied; /* tied, and the file has an equal lm_head.weight nevertheless: it is in the list */
    sn_gguf gguf;             /* is_gguf: for the tokenizer's keys */
    sn_st st;                 /* else */
    sn_names names;
} sn_model_files;

/* Every tensor of the architecture must be there with its shape, and no other (buffers that older transformers saved are
 * passed over); an absent lm_head.weight is an error unless embeddings are tied; a folder's that differs from tied embeddings unties
 * them, with a warning. The message names file and tensor. */
sn_status sn_model_files_open(const char *path, sn_model_files *m);
void sn_model_files_close(sn_model_files *m);

const sn_model_tensor *sn_model_files_find(const sn_model_files *m, const char *hf_name); /* NULL when absent */

/* Reads rows [row0, row0 + n_rows) along the first dimension of t->shape, in Hugging Face's order, in the file's dtype;
 * `bytes` is the buffer's exact size (a row of a vector is one element). SN_ERR_UNSUPPORTED for a part of a quantised
 * vector and for a transposed tensor that is quantised: see sn_model_files_read_stored. */
sn_status sn_model_files_read(const sn_model_files *m, const sn_model_tensor *t, int64_t row0, int64_t n_rows, void *buffer, size_t bytes);

/* The tensor's bytes as they lie in the file (of a transposed one: rows of [out,in]), from byte `from`. */
sn_status sn_model_files_read_stored(const sn_model_files *m, const sn_model_tensor *t, uint64_t from, void *buffer, size_t bytes);

#endif
