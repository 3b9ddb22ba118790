#include "io/model_names.h"

#include <stdio.h>
#include <string.h>

/* Extents by letter: V vocabulary, H hidden, I intermediate, Q heads * head_dim, K KV heads * head_dim, P positions, 3 three
 * times hidden. */
typedef struct pattern {
    const char *hf, *gguf; /* without the layer's prefix */
    char shape[3];
    char needs;   /* 'a' attention_bias, 'm' mlp_bias, 0 always */
    char permute; /* 'q' or 'k': heads or KV heads */
    bool transposed;
} pattern;

static const pattern llama_first[] = {{"model.embed_tokens.weight", "token_embd.weight", "VH", 0, 0, false}};
static const pattern llama_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", "H", 0, 0, false},
    {"self_attn.q_proj.weight", "attn_q.weight", "QH", 0, 'q', false},
    {"self_attn.q_proj.bias", "attn_q.bias", "Q", 'a', 'q', false},
    {"self_attn.k_proj.weight", "attn_k.weight", "KH", 0, 'k', false},
    {"self_attn.k_proj.bias", "attn_k.bias", "K", 'a', 'k', false},
    {"self_attn.v_proj.weight", "attn_v.weight", "KH", 0, 0, false},
    {"self_attn.v_proj.bias", "attn_v.bias", "K", 'a', 0, false},
    {"self_attn.o_proj.weight", "attn_output.weight", "HQ", 0, 0, false},
    {"self_attn.o_proj.bias", "attn_output.bias", "H", 'a', 0, false},
    {"post_attention_layernorm.weight", "ffn_norm.weight", "H", 0, 0, false},
    {"mlp.gate_proj.weight", "ffn_gate.weight", "IH", 0, 0, false},
    {"mlp.gate_proj.bias", "ffn_gate.bias", "I", 'm', 0, false},
    {"mlp.up_proj.weight", "ffn_up.weight", "IH", 0, 0, false},
    {"mlp.up_proj.bias", "ffn_up.bias", "I", 'm', 0, false},
    {"mlp.down_proj.weight", "ffn_down.weight", "HI", 0, 0, false},
    {"mlp.down_proj.bias", "ffn_down.bias", "H", 'm', 0, false},
};
static const pattern llama_last[] = {
    {"model.norm.weight", "output_norm.weight", "H", 0, 0, false},
    {"lm_head.weight", "output.weight", "VH", 0, 0, false},
};

static const pattern gpt2_first[] = {
    {"transformer.wte.weight", "token_embd.weight", "VH", 0, 0, false},
    {"transformer.wpe.weight", "position_embd.weight", "PH", 0, 0, false},
};
static const pattern gpt2_layer[] = {
    {"ln_1.weight", "attn_norm.weight", "H", 0, 0, false},          {"ln_1.bias", "attn_norm.bias", "H", 0, 0, false},
    {"attn.c_attn.weight", "attn_qkv.weight", "H3", 0, 0, true},    {"attn.c_attn.bias", "attn_qkv.bias", "3", 0, 0, false},
    {"attn.c_proj.weight", "attn_output.weight", "HH", 0, 0, true}, {"attn.c_proj.bias", "attn_output.bias", "H", 0, 0, false},
    {"ln_2.weight", "ffn_norm.weight", "H", 0, 0, false},           {"ln_2.bias", "ffn_norm.bias", "H", 0, 0, false},
    {"mlp.c_fc.weight", "ffn_up.weight", "HI", 0, 0, true},         {"mlp.c_fc.bias", "ffn_up.bias", "I", 0, 0, false},
    {"mlp.c_proj.weight", "ffn_down.weight", "IH", 0, 0, true},     {"mlp.c_proj.bias", "ffn_down.bias", "H", 0, 0, false},
};
static const pattern gpt2_last[] = {
    {"transformer.ln_f.weight", "output_norm.weight", "H", 0, 0, false},
    {"transformer.ln_f.bias", "output_norm.bias", "H", 0, 0, false},
    {"lm_head.weight", "output.weight", "VH", 0, 0, false},
};

typedef struct family {
    const pattern *first, *layer, *last;
    size_t first_count, layer_count, last_count;
    const char *prefix; /* of a layer in a folder */
} family;

#define COUNT(array) (sizeof(array) / sizeof *(array))
static const family families[] = {
    [SN_ARCH_LLAMA] = {llama_first, llama_layer, llama_last, COUNT(llama_first), COUNT(llama_layer), COUNT(llama_last), "model.layers."},
    [SN_ARCH_GPT2] = {gpt2_first, gpt2_layer, gpt2_last, COUNT(gpt2_first), COUNT(gpt2_layer), COUNT(gpt2_last), "transformer.h."},
};

static bool present(const pattern *p, const sn_model_config *c) { return !p->needs || (p->needs == 'a' ? c->attention_bias : c->mlp_bias); }

static size_t layer_tensors(const sn_model_config *c) {
    const family *f = &families[c->arch];
    size_t n = 0;
    for (size_t i = 0; i < f->layer_count; i++) n += present(&f->layer[i], c);
    return n;
}

size_t sn_model_name_count(const sn_model_config *c) {
    const family *f = &families[c->arch];
    return f->first_count + (size_t)c->num_layers * layer_tensors(c) + f->last_count;
}

static int64_t extent(const sn_model_config *c, char letter) {
    switch (letter) {
    case 'V': return c->vocab_size;
    case 'H': return c->hidden_size;
    case 'I': return c->intermediate_size;
    case 'Q': return c->num_heads * c->head_dim;
    case 'K': return c->num_kv_heads * c->head_dim;
    case 'P': return c->max_position;
    default: return 3 * c->hidden_size;
    }
}

static void describe(const sn_model_config *c, const pattern *p, long long layer, sn_model_name *out) {
    *out = (sn_model_name){.transposed = p->transposed};
    if (layer < 0) {
        snprintf(out->hf, sizeof out->hf, "%s", p->hf);
        snprintf(out->gguf, sizeof out->gguf, "%s", p->gguf);
    } else {
        snprintf(out->hf, sizeof out->hf, "%s%lld.%s", families[c->arch].prefix, layer, p->hf);
        snprintf(out->gguf, sizeof out->gguf, "blk.%lld.%s", layer, p->gguf);
    }
    for (int i = 0; p->shape[i]; i++) out->shape.d[out->shape.rank++] = extent(c, p->shape[i]);
    if (p->permute) out->row_heads = p->permute == 'q' ? c->num_heads : c->num_kv_heads;
    out->optional = c->tie_word_embeddings && !strcmp(p->hf, "lm_head.weight");
}

void sn_model_name_at(const sn_model_config *c, size_t i, sn_model_name *out) {
    const family *f = &families[c->arch];
    size_t each = layer_tensors(c), all = (size_t)c->num_layers * each;
    if (i < f->first_count) {
        describe(c, &f->first[i], -1, out);
        return;
    }
    i -= f->first_count;
    if (i >= all) {
        describe(c, &f->last[i - all], -1, out);
        return;
    }
    size_t nth = i % each;
    for (const pattern *p = f->layer;; p++) {
        if (!present(p, c) || nth--) continue;
        describe(c, p, (long long)(i / each), out);
        return;
    }
}

/* The layer's number at *text, which moves past it and its dot; false when there is none below num_layers. */
static bool layer_number(const char **text, int64_t num_layers, long long *layer) {
    const char *p = *text;
    if (*p < '0' || *p > '9' || (*p == '0' && p[1] != '.')) return false;
    for (*layer = 0; *p >= '0' && *p <= '9' && *layer < num_layers; p++) *layer = *layer * 10 + (*p - '0');
    if (*p != '.' || *layer >= num_layers) return false;
    *text = p + 1;
    return true;
}

static bool by_name(const sn_model_config *c, const char *name, bool gguf, sn_model_name *out) {
    const family *f = &families[c->arch];
    const char *prefix = gguf ? "blk." : f->prefix;
    long long layer = -1;
    bool in_layer = !strncmp(name, prefix, strlen(prefix));
    if (in_layer) {
        name += strlen(prefix);
        if (!layer_number(&name, c->num_layers, &layer)) return false;
    }
    const pattern *groups[] = {in_layer ? f->layer : f->first, f->last};
    size_t counts[] = {in_layer ? f->layer_count : f->first_count, in_layer ? 0 : f->last_count};
    for (int g = 0; g < 2; g++)
        for (size_t i = 0; i < counts[g]; i++) {
            const pattern *p = &groups[g][i];
            if (strcmp(name, gguf ? p->gguf : p->hf) || !present(p, c)) continue;
            describe(c, p, layer, out);
            return true;
        }
    return false;
}

bool sn_model_name_by_hf(const sn_model_config *c, const char *hf, sn_model_name *out) { return by_name(c, hf, false, out); }
bool sn_model_name_by_gguf(const sn_model_config *c, const char *gguf, sn_model_name *out) { return by_name(c, gguf, true, out); }

void sn_gguf_permute_rows(const void *from, int64_t row0, int64_t n, size_t row_bytes, int64_t head_dim, void *to) {
    const char *source = from;
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)sn_gguf_row(row0 + i, head_dim) * row_bytes, source + (size_t)i * row_bytes, row_bytes);
}
