/* Tensors of a model: Hugging Face names, GGUF names, shapes, and how GGUF lays the data out differently.
 *
 * Two layouts differ. llama.cpp's converter permutes the rows of q_proj and k_proj (architecture llama), so that rotary
 * pairs lie side by side: within each head of head_dim rows, row 2j + h of the GGUF is row h * head_dim/2 + j of the
 * folder. And GPT-2's Conv1D weights are [in,out] in a folder, [out,in] in a GGUF. */
#ifndef SN_IO_MODEL_NAMES_H
#define SN_IO_MODEL_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "io/model_config.h"
#include "tensor/shape.h"

typedef struct sn_model_name {
    char hf[128], gguf[128];
    sn_shape shape;    /* Hugging Face's */
    int64_t row_heads; /* > 0: the GGUF's rows are permuted within each of so many heads */
    bool transposed;   /* the GGUF has [out,in] for this shape [in,out] */
    bool optional;     /* lm_head.weight of a model with tied embeddings */
} sn_model_name;

/* Number of tensors that a model of this config has, lm_head included, and the i-th of them: embeddings first, then layer
 * by layer, final norm, lm_head. */
size_t sn_model_name_count(const sn_model_config *c);
void sn_model_name_at(const sn_model_config *c, size_t i, sn_model_name *out);

/* By name; false when a model of this config has no such tensor. */
bool sn_model_name_by_hf(const sn_model_config *c, const char *hf, sn_model_name *out);
bool sn_model_name_by_gguf(const sn_model_config *c, const char *gguf, sn_model_name *out);

/* The GGUF's row of a folder's row, rows counted over all heads. */
static inline int64_t sn_gguf_row(int64_t row, int64_t head_dim) {
    int64_t in_head = row % head_dim, half = head_dim / 2;
    return row - in_head + 2 * (in_head % half) + in_head / half;
}

/* Puts rows [row0, row0 + n) of a folder (as they lie in `from`) at their places in a whole GGUF tensor `to`. */
void sn_gguf_permute_rows(const void *from, int64_t row0, int64_t n, size_t row_bytes, int64_t head_dim, void *to);

#endif
