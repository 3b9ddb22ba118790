/* The Llama family (Llama, SmolLM2, ...): pre-norm blocks of grouped-query attention with rotary positions and a SwiGLU
 * feed-forward. Sources: Touvron et al. 2023 (Llama); Su et al. 2021 (RoPE); Ainslie et al. 2023 (GQA); Shazeer 2020
 * (SwiGLU). Parameter names are transformers'. */
#include "models/build.h"
#include "ops/embedding/embedding.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/rope_table/rope_table.h"

static sn_vid norm(sn_builder *b, sn_vid x, const char *name) {
    int64_t E = b->config->hidden_size;
    sn_vid w = sn_build_weight(b, sn_name(b->g, "%s.weight", name), E, 0, SN_AXIS_EMBED, SN_AXIS_NONE, SN_INIT_CONST, 1);
    sn_attrs a = {.f[SN_RMS_NORM_EPS] = b->config->norm_eps};
    return sn_append1(b->g, SN_OP_rms_norm, &a, 2, (sn_vid[]){x, w}, name);
}

static sn_vid rotate(sn_builder *b, sn_vid x, const char *name) {
    sn_attrs a = {0};
    a.i[SN_ROPE_HEAD_DIM] = b->config->head_dim;
    return sn_append1(b->g, SN_OP_rope, &a, 2, (sn_vid[]){x, b->rope}, name);
}

static void rope_table(sn_builder *b) {
    const sn_rope *r = &b->config->rope;
    sn_attrs a = {0};
    a.i[SN_ROPE_TABLE_DIMS] = b->config->head_dim;
    a.i[SN_ROPE_TABLE_TYPE] = r->type;
    a.i[SN_ROPE_TABLE_ORIGINAL_CONTEXT] = r->original_max_position;
    a.f[SN_ROPE_TABLE_THETA] = r->theta;
    a.f[SN_ROPE_TABLE_FACTOR] = r->factor;
    a.f[SN_ROPE_TABLE_LOW_FREQ_FACTOR] = r->low_freq_factor;
    a.f[SN_ROPE_TABLE_HIGH_FREQ_FACTOR] = r->high_freq_factor;
    b->rope = sn_append1(b->g, SN_OP_rope_table, &a, 1, (sn_vid[]){b->positions}, "rope_table");
}

static sn_vid attention_part(sn_builder *b, sn_vid x, int layer) {
    const sn_model_config *c = b->config;
    sn_graph *g = b->g;
    int64_t E = c->hidden_size, D = c->head_dim, H = c->num_heads, G = c->num_kv_heads;
#define NAME(s) sn_name(g, "model.layers.%d.self_attn." s, layer)
    sn_vid h = norm(b, x, sn_name(g, "model.layers.%d.input_layernorm", layer));
    sn_vid q = sn_build_linear(b, h, &(sn_linear){NAME("q_proj"), E, H * D, SN_AXIS_EMBED, SN_AXIS_HEADS, c->attention_bias, false, 0.02f});
    sn_vid k =
        sn_build_linear(b, h, &(sn_linear){NAME("k_proj"), E, G * D, SN_AXIS_EMBED, SN_AXIS_KV_HEADS, c->attention_bias, false, 0.02f});
    sn_vid v =
        sn_build_linear(b, h, &(sn_linear){NAME("v_proj"), E, G * D, SN_AXIS_EMBED, SN_AXIS_KV_HEADS, c->attention_bias, false, 0.02f});
    q = rotate(b, q, NAME("q_rope"));
    k = rotate(b, k, NAME("k_rope"));
    sn_vid o = sn_build_attention(b, q, k, v, D, c->sliding_window, layer);
    o = sn_build_linear(b, o, &(sn_linear){NAME("o_proj"), H * D, E, SN_AXIS_HEADS, SN_AXIS_EMBED, c->attention_bias, false, 0.02f});
#undef NAME
    return sn_build_add(b, x, o, sn_name(g, "layers.%d.attention.residual", layer));
}

static sn_vid mlp_part(sn_builder *b, sn_vid x, int layer) {
    const sn_model_config *c = b->config;
    sn_graph *g = b->g;
    int64_t E = c->hidden_size, F = c->intermediate_size;
#define NAME(s) sn_name(g, "model.layers.%d.mlp." s, layer)
    sn_vid h = norm(b, x, sn_name(g, "model.layers.%d.post_attention_layernorm", layer));
    sn_vid gate = sn_build_linear(b, h, &(sn_linear){NAME("gate_proj"), E, F, SN_AXIS_EMBED, SN_AXIS_MLP, c->mlp_bias, false, 0.02f});
    sn_vid up = sn_build_linear(b, h, &(sn_linear){NAME("up_proj"), E, F, SN_AXIS_EMBED, SN_AXIS_MLP, c->mlp_bias, false, 0.02f});
    h = sn_append1(g, SN_OP_swiglu, NULL, 2, (sn_vid[]){gate, up}, NAME("swiglu"));
    h = sn_build_linear(b, h, &(sn_linear){NAME("down_proj"), F, E, SN_AXIS_MLP, SN_AXIS_EMBED, c->mlp_bias, false, 0.02f});
#undef NAME
    return sn_build_add(b, x, h, sn_name(g, "layers.%d.mlp.residual", layer));
}

sn_status sn_model_llama(sn_builder *b) {
    const sn_model_config *c = b->config;
    sn_graph *g = b->g;
    if (c->rope.type == SN_ROPE_FACTORS) return sn_fail(SN_ERR_UNSUPPORTED, "rope_freqs.weight follows no known rope scaling");
    sn_vid ids = sn_input(g, "ids", SN_I32, sn_shape_of(b->shape->tokens));
    sn_build_inputs(b);
    rope_table(b);
    sn_vid table =
        sn_build_weight(b, "model.embed_tokens.weight", c->vocab_size, c->hidden_size, SN_AXIS_VOCAB, SN_AXIS_EMBED, SN_INIT_NORMAL, 0.02f);
    sn_vid x = sn_append1(g, SN_OP_embedding, NULL, 2, (sn_vid[]){ids, table}, "embed_tokens");
    for (int layer = 0; layer < (int)c->num_layers; layer++) {
        g->layer = layer;
        g->part = SN_PART_ATTENTION;
        x = attention_part(b, x, layer);
        g->part = SN_PART_MLP;
        x = mlp_part(b, x, layer);
    }
    g->layer = -1;
    g->part = SN_PART_NONE;
    x = norm(b, x, "model.norm");
    sn_vid head = c->tie_word_embeddings ? table
                                         : sn_build_weight(b, "lm_head.weight", c->vocab_size, c->hidden_size, SN_AXIS_VOCAB, SN_AXIS_EMBED,
                                                           SN_INIT_NORMAL, 0.02f);
    sn_build_head(b, x, head);
    return g->status;
}
