/* A model at hand: its configuration, and, unless it is a bare shape, its files and tokenizer. */
#ifndef SN_ENGINE_MODEL_H
#define SN_ENGINE_MODEL_H

#include "graph/graph.h"
#include "io/model_file.h"
#include "io/tokenizer.h"
#include "models/model.h"

typedef struct sn_model {
    char *path;
    sn_model_config *config; /* of files, or of the shape */
    bool has_weights;
    sn_model_files files;
    sn_model_config shape;
    sn_tokenizer *tokenizer; /* NULL for a bare shape */
    char *chat_template;     /* text; NULL when the model has none */
} sn_model;

/* Opens a pulled name, a GGUF file, a Hugging Face folder, a config.json without weights, or a named shape
 * ("llama-3-8b"). The tokenizer is read where the model has one. */
sn_status sn_model_open(const char *name_or_path, sn_model *m);
void sn_model_close(sn_model *m);

/* The parameter source of a model with weights, for sn_model_build. */
sn_parameters sn_model_parameters(sn_model *m);

/* Named shapes: published configurations of well-known models. NULL-terminated name list for messages. */
bool sn_named_shape(const char *name, sn_model_config *out);
const char *sn_named_shapes(void);

#endif
