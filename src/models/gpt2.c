/* GPT-2: learnt positions, LayerNorm, multi-head attention from one fused projection, GELU feed-forward, tied head.
 * Source: Radford et al. 2019. Parameter names are transformers'; its Conv1D weights are [in, out]. */
#include "models/build.h"
#include "ops/embedding/embedding.h"
#include "ops/gelu/gelu.h"
#include "ops/layer_norm/layer_norm.h"

static sn_vid norm(sn_builder *b, sn_vid x, const char *name) {
    int64_t E = b->config->hidden_size;
    sn_vid w = sn_build_weight(b, sn_name(b->g, "%s.weight", name), E, 0, SN_AXIS_EMBED, SN_AXIS_NONE, SN_INIT_CONST, 1);
    sn_vid bias = sn_build_weight(b, sn_name(b->g, "%s.bias", name), E, 0, SN_AXIS_EMBED, SN_AXIS_NONE, SN_INIT_ZERO, 0);
    sn_attrs a = {.f[SN_LAYER_NORM_EPS] = b->config->norm_eps};
    return sn_append1(b->g, SN_OP_layer_norm, &a, 3, (sn_vid[]){x, w, bias}, name);
}

static sn_vid conv1d(sn_builder *b, sn_vid x, const char *name, int64_t in, int64_t out, sn_axis in_axis, sn_axis out_axis) {
    return sn_build_linear(b, x, &(sn_linear){name, in, out, in_axis, out_axis, true, true, 0.02f});
}

static sn_vid block(sn_builder *b, sn_vid x, int layer) {
    const sn_model_config *c = b->config;
    sn_graph *g = b->g;
    int64_t E = c->hidden_size, F = c->intermediate_size;
    sn_vid qkv[SN_MAX_OUT];
#define NAME(s) sn_name(g, "transformer.h.%d." s, layer)
    g->part = SN_PART_ATTENTION;
    sn_vid h = norm(b, x, NAME("ln_1"));
    h = conv1d(b, h, NAME("attn.c_attn"), E, 3 * E, SN_AXIS_EMBED, SN_AXIS_HEADS);
    sn_append(g, SN_OP_split_cols, NULL, 1, (sn_vid[]){h}, NAME("attn.qkv"), qkv);
    h = sn_build_attention(b, qkv[0], qkv[1], qkv[2], c->head_dim, 0, layer);
    h = conv1d(b, h, NAME("attn.c_proj"), E, E, SN_AXIS_HEADS, SN_AXIS_EMBED);
    x = sn_build_add(b, x, h, NAME("attn.residual"));
    g->part = SN_PART_MLP;
    h = norm(b, x, NAME("ln_2"));
    h = conv1d(b, h, NAME("mlp.c_fc"), E, F, SN_AXIS_EMBED, SN_AXIS_MLP);
    sn_attrs act = {0};
    act.i[SN_GELU_EXACT] = c->hidden_act == SN_ACT_GELU;
    h = sn_append1(g, SN_OP_gelu, &act, 1, (sn_vid[]){h}, NAME("mlp.act"));
    h = conv1d(b, h, NAME("mlp.c_proj"), F, E, SN_AXIS_MLP, SN_AXIS_EMBED);
#undef NAME
    return sn_build_add(b, x, h, sn_name(g, "transformer.h.%d.mlp.residual", layer));
}

sn_status sn_model_gpt2(sn_builder *b) {
    const sn_model_config *c = b->config;
    sn_graph *g = b->g;
    sn_vid ids = sn_input(g, "ids", SN_I32, sn_shape_of(b->shape->tokens));
    sn_build_inputs(b);
    sn_vid table =
        sn_build_weight(b, "transformer.wte.weight", c->vocab_size, c->hidden_size, SN_AXIS_VOCAB, SN_AXIS_EMBED, SN_INIT_NORMAL, 0.02f);
    sn_vid places =
        sn_build_weight(b, "transformer.wpe.weight", c->max_position, c->hidden_size, SN_AXIS_NONE, SN_AXIS_EMBED, SN_INIT_NORMAL, 0.01f);
    sn_vid x = sn_append1(g, SN_OP_embedding, NULL, 2, (sn_vid[]){ids, table}, "wte");
    sn_vid p = sn_append1(g, SN_OP_embedding, NULL, 2, (sn_vid[]){b->positions, places}, "wpe");
    x = sn_build_add(b, x, p, "embeddings");
    for (int layer = 0; layer < (int)c->num_layers; layer++) {
        g->layer = layer;
        x = block(b, x, layer);
    }
    g->layer = -1;
    g->part = SN_PART_NONE;
    x = norm(b, x, "transformer.ln_f");
    sn_vid head = c->tie_word_embeddings ? table
                                         : sn_build_weight(b, "lm_head.weight", c->vocab_size, c->hidden_size, SN_AXIS_VOCAB, SN_AXIS_EMBED,
                                                           SN_INIT_NORMAL, 0.02f);
    sn_build_head(b, x, head);
    return g->status;
}
