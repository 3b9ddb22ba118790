/* Byte-pair-encoding tokenizers: text to token ids and back.
 *
 *     text --added tokens--> segments --normalizer--> --pre-tokenizer--> words --merges--> ids
 *
 * Two kinds of vocabulary are read. Byte-level BPE (GPT-2, Llama-3, Qwen2, SmolLM: every byte is a symbol) and character
 * BPE with byte fallback (Llama-2, Mistral, Gemma: <0x0A> stands for a byte whose character is not in the vocabulary).
 * The ids equal those of Hugging Face `tokenizers`.
 *
 * A text may hold any bytes. Bytes that are not valid UTF-8 form words of their own, which neither the normalizer nor the
 * pre-tokenizer sees. When the vocabulary holds all 256 bytes and no normalizer is set, decode(encode(x)) == x for every x.
 * A byte that the vocabulary lacks becomes the model's unknown token, or, if it has none, vanishes, as in the reference.
 *
 * A tokenizer does not change after it was opened, except by sn_tokenizer_set_* and sn_tokenizer_add_eos; any number of
 * threads may encode and decode with it. Texts are at most 1 GiB long. */
#ifndef SN_IO_TOKENIZER_H
#define SN_IO_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef struct sn_tokenizer sn_tokenizer;
struct sn_gguf;

/* A growing array of token ids. Zero-initialise to start. */
typedef struct sn_ids {
    int32_t *data;
    size_t size, capacity;
} sn_ids;
sn_status sn_ids_push(sn_ids *ids, int32_t id);
void sn_ids_free(sn_ids *ids);

/* Opens a tokenizer from the text of a Hugging Face tokenizer.json. `config` is the text of tokenizer_config.json, which
 * names the bos, eos, pad and unk tokens and says whether BOS is added; NULL when there is none. Neither is needed
 * afterwards. `name` stands in messages (the path). SN_ERR_FORMAT names the wrong key; SN_ERR_UNSUPPORTED names a model,
 * normalizer, pre-tokenizer or post-processor that snug has no code for. */
sn_status sn_tokenizer_from_json(const char *name, const char *json, size_t size, const char *config, size_t config_size,
                                 sn_tokenizer **out);

/* Opens a tokenizer from a GGUF file's tokenizer.ggml.* keys; tokenizer.ggml.model is "gpt2" or "llama". */
sn_status sn_tokenizer_from_gguf(const struct sn_gguf *gguf, sn_tokenizer **out);

void sn_tokenizer_close(sn_tokenizer *t); /* NULL is fine */

enum {
    SN_TOKENIZER_ADD_SPECIAL = 1,   /* adds BOS and EOS as the model's post-processor says; never a second BOS */
    SN_TOKENIZER_PARSE_SPECIAL = 2, /* special tokens written in the text become their ids; without it they stay text */
    SN_TOKENIZER_SKIP_SPECIAL = 4,  /* decode leaves special tokens out */
};

/* Appends the ids of `text` (n bytes). */
sn_status sn_tokenizer_encode(const sn_tokenizer *t, const char *text, size_t n, unsigned flags, sn_ids *out);

/* Appends the bytes of n ids. SN_ERR_DATA names an id outside the vocabulary. */
sn_status sn_tokenizer_decode(const sn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, sn_str *out);

/* Decodes one id at a time for streaming. What it appends never ends inside a UTF-8 character that the next ids may
 * complete; the pieces together equal sn_tokenizer_decode of all ids. Set `t` and `flags`, zero the rest. */
typedef struct sn_detokenizer {
    const sn_tokenizer *t;
    unsigned flags;
    bool started;
    unsigned held_size;
    char held[4];
} sn_detokenizer;
sn_status sn_detokenizer_add(sn_detokenizer *d, int32_t id, sn_str *out);
sn_status sn_detokenizer_finish(sn_detokenizer *d, sn_str *out); /* appends what is still held back */

int32_t sn_tokenizer_size(const sn_tokenizer *t); /* largest id + 1 */

/* The bytes that `id` decodes to, *n of them, not NUL-terminated; NULL when the id is outside the vocabulary. */
const char *sn_tokenizer_token(const sn_tokenizer *t, int32_t id, size_t *n);

/* The id of an added token with this text, else of the vocabulary's token that decodes to these bytes; -1 if there is none. */
int32_t sn_tokenizer_id(const sn_tokenizer *t, const char *text, size_t n);

bool sn_tokenizer_is_special(const sn_tokenizer *t, int32_t id);
bool sn_tokenizer_is_eos(const sn_tokenizer *t, int32_t id);

/* -1 when the model has none. The first eos is the one that training appends. */
int32_t sn_tokenizer_bos(const sn_tokenizer *t);
int32_t sn_tokenizer_eos(const sn_tokenizer *t);
int32_t sn_tokenizer_pad(const sn_tokenizer *t);
int32_t sn_tokenizer_unk(const sn_tokenizer *t);

/* Ids that generation_config.json or a chat template adds to the end-of-text set. */
sn_status sn_tokenizer_add_eos(sn_tokenizer *t, int32_t id);

size_t sn_tokenizer_bytes(const sn_tokenizer *t); /* memory that the tokenizer holds between calls */

#endif
