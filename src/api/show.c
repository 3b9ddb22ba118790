/* What is in a model, for people and as JSON. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/bytes.h"

/* ---- Tensors by class and form ---- */

typedef enum group { EMBEDDING, ATTENTION, MLP, NORMS, HEAD, GROUPS } group;
static const char *const group_names[GROUPS] = {"embedding", "attention", "mlp", "norms", "lm_head"};

static group group_of(const char *name) {
    if (strstr(name, "norm") || strstr(name, ".ln_")) return NORMS;
    if (strstr(name, "lm_head")) return HEAD;
    if (strstr(name, "embed") || strstr(name, "wte") || strstr(name, "wpe")) return EMBEDDING;
    return strstr(name, "mlp") ? MLP : ATTENTION;
}

typedef struct form_line {
    int64_t tensors, elements;
    uint64_t bytes;
} form_line;

typedef struct summary {
    form_line by[GROUPS][SN_DTYPE_COUNT], all;
} summary;

static void summarise(const sn_model *m, summary *out) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; m->has_weights && i < m->files.tensor_count; i++) {
        const sn_model_tensor *t = &m->files.tensors[i];
        int64_t n = 1;
        for (int d = 0; d < t->shape.rank; d++) n *= t->shape.d[d];
        form_line *lines[2] = {&out->by[group_of(t->name)][t->dtype], &out->all};
        for (int k = 0; k < 2; k++) {
            lines[k]->tensors++;
            lines[k]->elements += n;
            lines[k]->bytes += t->bytes;
        }
    }
}

/* ---- Metadata of a GGUF ---- */

static void scalar_text(const sn_gguf *g, const sn_gguf_kv *kv, char text[64]) {
    int64_t integer;
    double number;
    bool truth;
    if (kv->type == SN_GGUF_ARRAY) snprintf(text, 64, "%llu x %s", (unsigned long long)kv->count, sn_gguf_type_name(kv->item_type));
    else if (kv->type == SN_GGUF_BOOL && sn_gguf_get_bool(g, kv->key, &truth) == SN_OK) snprintf(text, 64, "%s", truth ? "true" : "false");
    else if ((kv->type == SN_GGUF_F32 || kv->type == SN_GGUF_F64) && sn_gguf_get_f64(g, kv->key, &number) == SN_OK)
        snprintf(text, 64, "%.9g", number);
    else if (sn_gguf_get_i64(g, kv->key, &integer) == SN_OK) snprintf(text, 64, "%lld", (long long)integer);
    else snprintf(text, 64, "?");
}

/* ---- Text ---- */

static const char *rope_name(const sn_rope *r) {
    static const char *const names[] = {"default", "linear", "llama3", "factors"};
    return names[r->type];
}

static void text_config(const sn_model_config *c, sn_str *out) {
    sn_str_printf(out, "%-16s %s\n", "architecture", c->architecture[0] ? c->architecture : c->arch == SN_ARCH_LLAMA ? "llama" : "gpt2");
    sn_str_printf(out, "%-16s %lld layers, hidden %lld, feed-forward %lld\n", "sizes", (long long)c->num_layers, (long long)c->hidden_size,
                  (long long)c->intermediate_size);
    sn_str_printf(out, "%-16s %lld heads of %lld, %lld key/value heads\n", "attention", (long long)c->num_heads, (long long)c->head_dim,
                  (long long)c->num_kv_heads);
    sn_str_printf(out, "%-16s %lld tokens", "context", (long long)c->max_position);
    if (c->arch == SN_ARCH_LLAMA) sn_str_printf(out, ", RoPE %s, theta %g", rope_name(&c->rope), c->rope.theta);
    if (c->sliding_window) sn_str_printf(out, ", window %lld", (long long)c->sliding_window);
    sn_str_printf(out, "\n%-16s %lld tokens, %s\n", "vocabulary", (long long)c->vocab_size,
                  c->tie_word_embeddings ? "tied embeddings" : "untied embeddings");
}

static void text_forms(const summary *sum, sn_str *out) {
    char bytes[24];
    sn_str_printf(out, "%-16s %.2f M parameters, %s\n", "weights", (double)sum->all.elements / 1e6, sn_bytes_text(sum->all.bytes, bytes));
    for (int g = 0; g < GROUPS; g++)
        for (int f = 0; f < SN_DTYPE_COUNT; f++)
            if (sum->by[g][f].tensors)
                sn_str_printf(out, "  %-14s %-5s %5lld tensors %12lld elements %10s\n", group_names[g], sn_dtype_name((sn_dtype)f),
                              (long long)sum->by[g][f].tensors, (long long)sum->by[g][f].elements,
                              sn_bytes_text(sum->by[g][f].bytes, bytes));
}

static void text_token(const sn_tokenizer *t, const char *name, int32_t id, sn_str *out) {
    size_t n = 0;
    const char *text = id >= 0 ? sn_tokenizer_token(t, id, &n) : NULL;
    if (!text) return;
    sn_str_printf(out, ", %s %d ", name, id);
    sn_str_json(out, text, n);
}

static void text_tokenizer(const sn_model *m, sn_str *out) {
    if (!m->tokenizer) return;
    sn_str_printf(out, "%-16s BPE, %d tokens", "tokenizer", sn_tokenizer_size(m->tokenizer));
    text_token(m->tokenizer, "bos", sn_tokenizer_bos(m->tokenizer), out);
    text_token(m->tokenizer, "eos", sn_tokenizer_eos(m->tokenizer), out);
    text_token(m->tokenizer, "pad", sn_tokenizer_pad(m->tokenizer), out);
    sn_str_printf(out, "\n%-16s %s\n", "chat template", m->chat_template ? "yes" : "no");
}

static void text_metadata(const sn_gguf *g, sn_str *out) {
    sn_str_printf(out, "metadata (GGUF v%u)\n", g->version);
    for (size_t i = 0; i < g->kv_count; i++) {
        const sn_gguf_kv *kv = &g->kv[i];
        char text[64];
        sn_str_printf(out, "  %-40s ", kv->key);
        if (kv->string) {
            size_t n = strlen(kv->string), shown = strcspn(kv->string, "\n");
            if (shown > 60) shown = 60;
            sn_str_append(out, kv->string, shown);
            sn_str_add(out, shown < n ? "...\n" : "\n");
        } else {
            scalar_text(g, kv, text);
            sn_str_printf(out, "%s\n", text);
        }
    }
}

static void show_text(const sn_model *m, sn_str *out) {
    summary sum;
    summarise(m, &sum);
    sn_str_printf(out, "%-16s %s (%s)\n", "model", m->path, !m->has_weights ? "no weights" : m->files.is_gguf ? "GGUF" : "Hugging Face");
    text_config(m->config, out);
    if (m->has_weights) text_forms(&sum, out);
    text_tokenizer(m, out);
    if (m->has_weights && m->files.is_gguf) text_metadata(&m->files.gguf, out);
}

/* ---- JSON ---- */

static void json_text(sn_str *out, const char *key, const char *text) {
    sn_str_printf(out, "\"%s\": ", key);
    if (text) sn_str_json(out, text, strlen(text));
    else sn_str_add(out, "null");
}

static void json_config(const sn_model_config *c, sn_str *out) {
    json_text(out, "architecture", c->architecture[0] ? c->architecture : c->arch == SN_ARCH_LLAMA ? "llama" : "gpt2");
    sn_str_printf(out,
                  ", \"vocab_size\": %lld, \"hidden_size\": %lld, \"intermediate_size\": %lld, \"num_hidden_layers\": %lld, "
                  "\"num_attention_heads\": %lld, "
                  "\"num_key_value_heads\": %lld, \"head_dim\": %lld, \"max_position_embeddings\": %lld, \"norm_eps\": %.9g, "
                  "\"tie_word_embeddings\": %s, \"sliding_window\": %lld",
                  (long long)c->vocab_size, (long long)c->hidden_size, (long long)c->intermediate_size, (long long)c->num_layers,
                  (long long)c->num_heads, (long long)c->num_kv_heads, (long long)c->head_dim, (long long)c->max_position, c->norm_eps,
                  c->tie_word_embeddings ? "true" : "false", (long long)c->sliding_window);
    if (c->arch == SN_ARCH_LLAMA) sn_str_printf(out, ", \"rope_theta\": %.9g, \"rope_type\": \"%s\"", c->rope.theta, rope_name(&c->rope));
}

static void json_forms(const summary *sum, sn_str *out) {
    sn_str_printf(out, ", \"parameters\": %lld, \"bytes\": %llu, \"tensors\": %lld, \"forms\": [", (long long)sum->all.elements,
                  (unsigned long long)sum->all.bytes, (long long)sum->all.tensors);
    bool first = true;
    for (int g = 0; g < GROUPS; g++)
        for (int f = 0; f < SN_DTYPE_COUNT; f++) {
            const form_line *l = &sum->by[g][f];
            if (!l->tensors) continue;
            sn_str_printf(out, "%s{\"class\": \"%s\", \"form\": \"%s\", \"tensors\": %lld, \"elements\": %lld, \"bytes\": %llu}",
                          first ? "" : ", ", group_names[g], sn_dtype_name((sn_dtype)f), (long long)l->tensors, (long long)l->elements,
                          (unsigned long long)l->bytes);
            first = false;
        }
    sn_str_char(out, ']');
}

static void json_tokenizer(const sn_model *m, sn_str *out) {
    if (!m->tokenizer) {
        sn_str_add(out, ", \"tokenizer\": null");
        return;
    }
    sn_str_printf(out, ", \"tokenizer\": {\"size\": %d, \"bos\": %d, \"eos\": %d, \"pad\": %d, \"unk\": %d}, ",
                  sn_tokenizer_size(m->tokenizer), sn_tokenizer_bos(m->tokenizer), sn_tokenizer_eos(m->tokenizer),
                  sn_tokenizer_pad(m->tokenizer), sn_tokenizer_unk(m->tokenizer));
    json_text(out, "chat_template", m->chat_template);
}

static void json_metadata(const sn_gguf *g, sn_str *out) {
    sn_str_printf(out, ", \"gguf_version\": %u, \"metadata\": {", g->version);
    for (size_t i = 0; i < g->kv_count; i++) {
        const sn_gguf_kv *kv = &g->kv[i];
        char text[64];
        if (i) sn_str_add(out, ", ");
        sn_str_json(out, kv->key, strlen(kv->key));
        sn_str_add(out, ": ");
        if (kv->string) {
            sn_str_json(out, kv->string, strlen(kv->string));
            continue;
        }
        scalar_text(g, kv, text);
        if (kv->type == SN_GGUF_ARRAY || !strpbrk(text, "0123456789tf") || strstr(text, "inf") || strstr(text, "nan"))
            sn_str_json(out, text, strlen(text));
        else sn_str_add(out, text);
    }
    sn_str_char(out, '}');
}

static void show_json(const sn_model *m, sn_str *out) {
    summary sum;
    summarise(m, &sum);
    sn_str_char(out, '{');
    json_text(out, "path", m->path);
    sn_str_printf(out, ", \"format\": \"%s\", ", !m->has_weights ? "shape" : m->files.is_gguf ? "gguf" : "huggingface");
    json_config(m->config, out);
    if (m->has_weights) json_forms(&sum, out);
    json_tokenizer(m, out);
    if (m->has_weights && m->files.is_gguf) json_metadata(&m->files.gguf, out);
    sn_str_add(out, "}\n");
}

snug_status snug_model_show(const snug_model *m, bool json, char **out) {
    sn_str text = {0};
    if (json) show_json(&m->model, &text);
    else show_text(&m->model, &text);
    sn_status s = sn_hand_out(&text, out);
    sn_str_free(&text);
    return (snug_status)s;
}
