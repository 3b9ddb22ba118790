/* Tokenizers written in the other file format: a GGUF's as tokenizer.json for Hugging Face `tokenizers` 0.23 and
 * transformers, a tokenizer.json as tokenizer.ggml.* keys for GGUF readers. */
#ifndef SN_IO_TOKENIZER_EXPORT_H
#define SN_IO_TOKENIZER_EXPORT_H

#include "io/gguf.h"

/* Appends a tokenizer.json that gives the GGUF's ids: model BPE with vocabulary and merges (of a SentencePiece vocabulary
 * the merges are every pair of tokens that forms a token, the best score first), pre-tokenizer, decoder, BOS and EOS as
 * TemplateProcessing, added tokens; and a tokenizer_config.json: bos, eos, pad and unk tokens, whether BOS and EOS are
 * added, model_max_length. Fails as sn_tokenizer_from_gguf does. */
sn_status sn_tokenizer_json_of_gguf(const sn_gguf *g, int64_t max_length, sn_str *json, sn_str *config);

typedef struct sn_tokenizer_files {
    const char *name;          /* for messages */
    const char *json, *config; /* texts of tokenizer.json and tokenizer_config.json (may be NULL) */
    size_t json_size, config_size;
    const int64_t *eos_ids; /* the model's: they become eot and eom behind the tokenizer's own */
    int eos_count;
    int64_t vocab_size; /* rows of the embedding; ids that the tokenizer lacks become unused tokens */
} sn_tokenizer_files;

/* Adds tokenizer.ggml.* keys: model, pre, tokens, token_type, merges (or scores), ids of special tokens, add_bos_token.
 * SN_ERR_UNSUPPORTED when GGUF has no name for the split, or an id is beyond vocab_size. */
sn_status sn_gguf_add_tokenizer(sn_gguf_writer *w, const sn_tokenizer_files *files);

#endif
