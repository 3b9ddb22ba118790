/* What the families share: parameters with tagged axes, and the ends of the graph. */
#ifndef SN_MODELS_BUILD_H
#define SN_MODELS_BUILD_H

#include "models/model.h"

typedef struct sn_builder {
    sn_graph *g;
    const sn_model_config *config;
    const sn_model_shape *shape;
    const sn_parameters *parameters;
    sn_vid positions, seq_start, rope, sequence, slots, block_table; /* inputs, where the role has them */
} sn_builder;

/* The weight [rows, cols] (a matrix: decays) or [rows] (a norm or bias when cols == 0: does not decay). */
sn_vid sn_build_weight(sn_builder *b, const char *name, int64_t rows, int64_t cols, sn_axis row_axis, sn_axis col_axis, sn_init init,
                       float scale);

/* x W^T (+ bias): name.weight [out, in], name.bias [out]. conv1d: the weight is [in, out], as GPT-2 keeps it. */
typedef struct sn_linear {
    const char *name;
    int64_t in, out;
    sn_axis in_axis, out_axis;
    bool bias, conv1d;
    float init;
} sn_linear;
sn_vid sn_build_linear(sn_builder *b, sn_vid x, const sn_linear *l);

/* Attention of q [T, H*D], k and v [T, G*D]: over the sequence's own tokens, or over layer's KV cache. */
sn_vid sn_build_attention(sn_builder *b, sn_vid q, sn_vid k, sn_vid v, int64_t head_dim, int64_t window, int layer);

/* The inputs that the role needs. */
void sn_build_inputs(sn_builder *b);

/* Ends the graph with the loss or the logits of hidden states x [T, E] under the head [V, E]. */
void sn_build_head(sn_builder *b, sn_vid x, sn_vid head);

sn_vid sn_build_add(sn_builder *b, sn_vid x, sn_vid y, const char *name);

sn_status sn_model_llama(sn_builder *b);
sn_status sn_model_gpt2(sn_builder *b);

#endif
