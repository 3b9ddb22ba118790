/* Text generation: a prompt and a decode program over one KV cache. */
#ifndef SN_ENGINE_GENERATE_H
#define SN_ENGINE_GENERATE_H

#include "engine/session.h"

typedef struct sn_generator {
    sn_session session;
    int64_t context;  /* tokens that the KV cache holds */
    int64_t position; /* tokens in it now */
    struct {
        int program;
        int64_t tokens;
    } buckets[4]; /* programs by the tokens they take at once, the smallest first */
    int n_buckets;
} sn_generator;

/* Plans and opens; the recipe's ctx_size tokens of cache. adapter: folder of a PEFT adapter, or NULL. When the recipe has a memory
 * budget it holds here as in training. */
sn_status sn_generator_open(sn_model *model, const sn_options *recipe, const char *adapter, sn_generator *g);

/* The same without memory, for `plan`. */
sn_status sn_generator_plan(sn_model *model, const sn_options *recipe, const char *adapter, sn_generator *g);
void sn_generator_close(sn_generator *g);

/* Appends n tokens. *logits: f32 [vocab] after the last of them, valid until the next call. SN_ERR_DATA when the context is full. */
sn_status sn_generator_feed(sn_generator *g, const int32_t *ids, int64_t n, float **logits);

/* Forgets what follows the first `position` tokens. */
void sn_generator_rewind(sn_generator *g, int64_t position);

#endif
