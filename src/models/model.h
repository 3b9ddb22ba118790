/* Models: a configuration becomes a forward graph. One file a family. */
#ifndef SN_MODELS_MODEL_H
#define SN_MODELS_MODEL_H

#include "graph/graph.h"
#include "io/model_config.h"

/* What the forward graph is for, and its extents. */
typedef struct sn_model_shape {
    int64_t tokens; /* T: tokens of one run of the program, over all ranks */
    /* for SN_ROLE_GENERATE */
    int64_t cache_blocks, block_size, table_blocks, sequences; /* KV cache: blocks, tokens a block, blocks a sequence, sequences */
    int64_t logit_rows;                                        /* rows of which logits are wanted */
    sn_dtype cache_form;
} sn_model_shape;

/* Finds where a parameter's bytes come from: sets the file's path and, in `source`, what lies there and how; source->file
 * is the job's to set. A parameter that the file lacks is an error naming it. NULL: no file, parameters are initialised as
 * the family does. */
typedef struct sn_parameters {
    sn_status (*find)(void *state, const char *name, const sn_shape *shape, sn_source *source, const char **path);
    void *state;
} sn_parameters;

/* Appends the forward graph of the architecture to g, whose role says what is wanted at the end:
 *   TRAIN, EVALUATE: inputs ids, positions, seq_start, labels i32 [T], scale f32 [1]; loss is added to the persistent
 *     "loss" f64 [2] = {sum of token losses, label tokens}; EVALUATE also gives the output token_loss f32 [T];
 *   LOGITS: inputs ids, positions, seq_start; output logits f32 [T, V];
 *   GENERATE: inputs ids, positions, sequence, slots i32 [T], block_table i32 [sequences, table_blocks],
 *     rows i32 [logit_rows]; output logits f32 [logit_rows, V].
 * Parameters are added to the job's table on first use. Source: the families' papers and their configurations on the
 * Hugging Face Hub. */
sn_status sn_model_build(sn_graph *g, const sn_model_config *config, const sn_model_shape *shape, const sn_parameters *parameters);

#endif
