/* The model config as GGUF metadata (general.architecture llama and gpt2).
 * Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#standardized-key-value-pairs */
#ifndef SN_IO_GGUF_CONFIG_H
#define SN_IO_GGUF_CONFIG_H

#include "io/gguf.h"
#include "io/model_config.h"

/* Besides metadata: biases and tied embeddings from the presence of tensors, the vocabulary from token_embd.weight, rope
 * scaling from rope_freqs.weight. SN_ERR_UNSUPPORTED names an architecture or rope type that snug does not have. */
sn_status sn_gguf_config_read(const sn_gguf *g, sn_model_config *c);

/* Adds general.architecture and the architecture's keys; with rope type llama3 or factors the caller also adds the tensor
 * rope_freqs.weight, f32 [head_dim / 2], from sn_rope_divisors. Tokenizer keys are not written here. */
sn_status sn_gguf_config_write(const sn_model_config *c, sn_gguf_writer *w);
bool sn_gguf_config_has_rope_freqs(const sn_model_config *c);

#endif
