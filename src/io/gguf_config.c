#include "io/gguf_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "llama." + suffix */
static const char *full_key(const sn_model_config *c, const char *suffix, char key[96]) {
    snprintf(key, 96, "%s.%s", c->arch == SN_ARCH_GPT2 ? "gpt2" : "llama", suffix);
    return key;
}

/* A key that may be absent: then *out stays. */
static sn_status get_int(const sn_gguf *g, const sn_model_config *c, const char *suffix, int64_t *out) {
    char key[96];
    return sn_gguf_find(g, full_key(c, suffix, key)) ? sn_gguf_get_i64(g, key, out) : SN_OK;
}
static sn_status get_real(const sn_gguf *g, const sn_model_config *c, const char *suffix, double *out) {
    char key[96];
    return sn_gguf_find(g, full_key(c, suffix, key)) ? sn_gguf_get_f64(g, key, out) : SN_OK;
}

static sn_status read_vocab(const sn_gguf *g, sn_model_config *c) {
    const sn_gguf_tensor *embedding = sn_gguf_find_tensor(g, "token_embd.weight");
    if (!embedding) return sn_fail(SN_ERR_FORMAT, "%s: no tensor token_embd.weight", g->path);
    SN_TRY(get_int(g, c, "vocab_size", &c->vocab_size));
    if (!c->vocab_size) c->vocab_size = embedding->shape.d[0];
    if (c->vocab_size != embedding->shape.d[0])
        return sn_fail(SN_ERR_FORMAT, "%s: vocab_size is %" PRId64 ", but token_embd.weight has %" PRId64 " rows", g->path, c->vocab_size,
                       embedding->shape.d[0]);
    return SN_OK;
}

static sn_status read_rope_scaling(const sn_gguf *g, sn_model_config *c) {
    char key[96];
    const char *type = "none";
    double scale = 0;
    SN_TRY(get_real(g, c, "rope.freq_base", &c->rope.theta));
    SN_TRY(get_real(g, c, "rope.scale_linear", &scale)); /* the older spelling of linear scaling */
    if (scale != 0 && scale != 1) {
        c->rope.type = SN_ROPE_LINEAR;
        c->rope.factor = scale;
    }
    if (!sn_gguf_find(g, full_key(c, "rope.scaling.type", key))) return SN_OK;
    SN_TRY(sn_gguf_get_string(g, key, &type));
    if (!strcmp(type, "none")) return SN_OK;
    if (strcmp(type, "linear"))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: key %s: rope type \"%.80s\" is not supported (none, linear are)", g->path, key, type);
    c->rope.type = SN_ROPE_LINEAR;
    return get_real(g, c, "rope.scaling.factor", &c->rope.factor);
}

static sn_status read_rope_freqs(const sn_gguf *g, sn_model_config *c) {
    const sn_gguf_tensor *t = sn_gguf_find_tensor(g, "rope_freqs.weight");
    char text[96];
    if (!t) return SN_OK;
    if (t->dtype != SN_F32 || t->shape.rank != 1 || t->shape.d[0] != c->head_dim / 2)
        return sn_fail(SN_ERR_FORMAT, "%s: tensor rope_freqs.weight: wanted f32 [%" PRId64 "], found %s %s", g->path, c->head_dim / 2,
                       sn_dtype_name(t->dtype), sn_shape_text(&t->shape, text));
    if (c->rope.type != SN_ROPE_DEFAULT) return sn_fail(SN_ERR_UNSUPPORTED, "%s: rope_freqs.weight besides linear rope scaling", g->path);
    float *divisors = sn_alloc((size_t)t->bytes);
    if (!divisors) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate the rope divisors", g->path);
    sn_status s = sn_gguf_read(g, t, 0, divisors, (size_t)t->bytes);
    if (s == SN_OK) s = sn_rope_from_divisors(c, g->path, divisors);
    sn_free(divisors);
    return s;
}

static sn_status read_heads(const sn_gguf *g, sn_model_config *c) {
    int64_t value_length = 0, rotary = 0, experts = 0;
    SN_TRY(get_int(g, c, "attention.head_count", &c->num_heads));
    SN_TRY(get_int(g, c, "attention.head_count_kv", &c->num_kv_heads));
    SN_TRY(get_int(g, c, "attention.key_length", &c->head_dim));
    SN_TRY(get_int(g, c, "attention.value_length", &value_length));
    SN_TRY(get_int(g, c, "attention.sliding_window", &c->sliding_window));
    SN_TRY(get_int(g, c, "rope.dimension_count", &rotary));
    SN_TRY(get_int(g, c, "expert_count", &experts));
    SN_TRY(sn_model_config_check(c, g->path));
    if (value_length && value_length != c->head_dim)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: attention.value_length %" PRId64 " differs from the head size %" PRId64, g->path,
                       value_length, c->head_dim);
    if (rotary && rotary != c->head_dim)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: rope.dimension_count %" PRId64 " differs from the head size %" PRId64, g->path, rotary,
                       c->head_dim);
    if (experts) return sn_fail(SN_ERR_UNSUPPORTED, "%s: mixture of %" PRId64 " experts", g->path, experts);
    return SN_OK;
}

static sn_status read_ids(const sn_gguf *g, sn_model_config *c) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}; /* both end a generation */
    if (sn_gguf_find(g, "tokenizer.ggml.bos_token_id")) SN_TRY(sn_gguf_get_i64(g, "tokenizer.ggml.bos_token_id", &c->bos_id));
    if (sn_gguf_find(g, "tokenizer.ggml.padding_token_id")) SN_TRY(sn_gguf_get_i64(g, "tokenizer.ggml.padding_token_id", &c->pad_id));
    for (size_t i = 0; i < 2; i++) {
        int64_t id;
        if (!sn_gguf_find(g, ends[i])) continue;
        SN_TRY(sn_gguf_get_i64(g, ends[i], &id));
        sn_model_config_add_eos(c, id);
    }
    return SN_OK;
}

static sn_status read_config(const sn_gguf *g, sn_model_config *c) {
    const char *architecture;
    SN_TRY(sn_gguf_get_string(g, "general.architecture", &architecture));
    bool gpt2 = !strcmp(architecture, "gpt2");
    if (!gpt2 && strcmp(architecture, "llama"))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: general.architecture \"%.80s\" is not supported (llama, gpt2 are)", g->path, architecture);
    sn_model_config_init(c, gpt2 ? SN_ARCH_GPT2 : SN_ARCH_LLAMA);
    SN_TRY(read_vocab(g, c));
    SN_TRY(get_int(g, c, "context_length", &c->max_position));
    SN_TRY(get_int(g, c, "embedding_length", &c->hidden_size));
    SN_TRY(get_int(g, c, "block_count", &c->num_layers));
    SN_TRY(get_int(g, c, "feed_forward_length", &c->intermediate_size));
    SN_TRY(get_real(g, c, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", &c->norm_eps));
    if (!gpt2) SN_TRY(read_rope_scaling(g, c));
    SN_TRY(read_heads(g, c));
    if (!gpt2) SN_TRY(read_rope_freqs(g, c));
    SN_TRY(read_ids(g, c));
    c->tie_word_embeddings = !sn_gguf_find_tensor(g, "output.weight");
    c->attention_bias = gpt2 || sn_gguf_find_tensor(g, "blk.0.attn_q.bias");
    c->mlp_bias = gpt2 || sn_gguf_find_tensor(g, "blk.0.ffn_gate.bias");
    return SN_OK;
}

sn_status sn_gguf_config_read(const sn_gguf *g, sn_model_config *c) {
    *c = (sn_model_config){0};
    sn_status s = read_config(g, c);
    if (s != SN_OK) sn_model_config_free(c);
    return s;
}

bool sn_gguf_config_has_rope_freqs(const sn_model_config *c) {
    return c->arch == SN_ARCH_LLAMA && (c->rope.type == SN_ROPE_LLAMA3 || c->rope.type == SN_ROPE_FACTORS);
}

static sn_status put_int(sn_gguf_writer *w, const sn_model_config *c, const char *suffix, int64_t value) {
    char key[96];
    return sn_gguf_add_u32(w, full_key(c, suffix, key), (uint32_t)value);
}
static sn_status put_real(sn_gguf_writer *w, const sn_model_config *c, const char *suffix, double value) {
    char key[96];
    return sn_gguf_add_f32(w, full_key(c, suffix, key), (float)value);
}

static sn_status write_llama(const sn_model_config *c, sn_gguf_writer *w) {
    char key[96];
    SN_TRY(put_int(w, c, "vocab_size", c->vocab_size));
    SN_TRY(put_int(w, c, "attention.head_count_kv", c->num_kv_heads));
    SN_TRY(put_int(w, c, "attention.key_length", c->head_dim));
    SN_TRY(put_int(w, c, "attention.value_length", c->head_dim));
    SN_TRY(put_int(w, c, "rope.dimension_count", c->head_dim));
    SN_TRY(put_real(w, c, "rope.freq_base", c->rope.theta));
    SN_TRY(put_real(w, c, "attention.layer_norm_rms_epsilon", c->norm_eps));
    if (c->sliding_window) SN_TRY(put_int(w, c, "attention.sliding_window", c->sliding_window));
    if (c->rope.type != SN_ROPE_LINEAR) return SN_OK;
    SN_TRY(sn_gguf_add_string(w, full_key(c, "rope.scaling.type", key), "linear", 6));
    return put_real(w, c, "rope.scaling.factor", c->rope.factor);
}

sn_status sn_gguf_config_write(const sn_model_config *c, sn_gguf_writer *w) {
    bool gpt2 = c->arch == SN_ARCH_GPT2;
    sn_hidden_act act = gpt2 ? SN_ACT_GELU_TANH : SN_ACT_SILU; /* GGUF has no key for it */
    if (c->hidden_act != act)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: GGUF's %s has activation %s only, the model has %s", w->path, gpt2 ? "gpt2" : "llama",
                       sn_hidden_act_name(act), sn_hidden_act_name(c->hidden_act));
    SN_TRY(sn_gguf_add_string(w, "general.architecture", gpt2 ? "gpt2" : "llama", gpt2 ? 4 : 5));
    SN_TRY(put_int(w, c, "context_length", c->max_position));
    SN_TRY(put_int(w, c, "embedding_length", c->hidden_size));
    SN_TRY(put_int(w, c, "block_count", c->num_layers));
    SN_TRY(put_int(w, c, "feed_forward_length", c->intermediate_size));
    SN_TRY(put_int(w, c, "attention.head_count", c->num_heads));
    return gpt2 ? put_real(w, c, "attention.layer_norm_epsilon", c->norm_eps) : write_llama(c, w);
}
