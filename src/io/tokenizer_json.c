/* A tokenizer from tokenizer.json and tokenizer_config.json (Hugging Face `tokenizers` 0.23). The text is read once, token
 * by token: no tree of it is built. */
#include "io/tokenizer_json.h"

#include <string.h>

int32_t sn_spec_find(const sn_tokenizer_spec *s, const char *text, size_t n) {
    for (size_t i = 0; i < s->added_count; i++)
        if (s->added[i].size == n && !memcmp(s->text.data + s->added[i].at, text, n)) return s->added[i].id;
    for (size_t i = 0; i < s->token_count; i++)
        if (s->tokens[i].size == n && !memcmp(s->text.data + s->tokens[i].at, text, n)) return s->tokens[i].id;
    return -1;
}

static sn_status read_id(sn_json *r, int32_t *out) {
    int64_t id;
    SN_TRY(sn_json_i64(r, &id));
    if (id < 0 || id >= SN_TOKENIZER_MAX_IDS) return sn_json_fail(r, "id %lld, want 0 to %d", (long long)id, SN_TOKENIZER_MAX_IDS - 1);
    *out = (int32_t)id;
    return SN_OK;
}

static sn_status read_added_token(sn_json *r, sn_tokenizer_spec *s, sn_str *text) {
    sn_added_token a = {.id = -1, .normalized = true};
    bool has_content = false;
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"special", &a.special},
                 {"single_word", &a.single_word},
                 {"lstrip", &a.lstrip},
                 {"rstrip", &a.rstrip},
                 {"normalized", &a.normalized}};
    if (r->type != SN_JSON_OBJECT) return sn_json_fail(r, "wanted object, found %s", sn_json_type_name(r->type));
    for (;;) {
        size_t i = 0;
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        while (i < sizeof flags / sizeof *flags && !sn_json_is(r, flags[i].key)) i++;
        if (i < sizeof flags / sizeof *flags) SN_TRY(sn_json_read_bool(r, flags[i].flag));
        else if (sn_json_is(r, "id")) {
            SN_TRY(sn_json_next(r));
            SN_TRY(read_id(r, &a.id));
        } else if (sn_json_is(r, "content")) {
            SN_TRY(sn_json_want(r, SN_JSON_STRING));
            sn_str_clear(text);
            sn_str_append(text, r->text, r->size);
            has_content = true;
        } else SN_TRY(sn_json_skip(r));
    }
    if (a.id < 0) return sn_json_fail(r, "id is missing");
    if (!has_content) return sn_json_fail(r, "content is missing");
    if (text->failed) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory", s->name);
    return sn_tokenizer_spec_added(s, text->data, text->size, a);
}

static sn_status read_added_tokens(sn_json *r, sn_tokenizer_spec *s, sn_str *text) {
    SN_TRY(sn_json_next(r));
    if (r->type == SN_JSON_NULL) return SN_OK;
    if (r->type != SN_JSON_ARRAY) return sn_json_fail(r, "added_tokens: wanted array, found %s", sn_json_type_name(r->type));
    for (size_t i = 0;; i++) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_ARRAY_END) return SN_OK;
        sn_status status = read_added_token(r, s, text);
        if (status != SN_OK) return sn_fail_in(status, "added_tokens[%zu]", i);
    }
}

static sn_status read_vocab(sn_json *r, sn_tokenizer_spec *s, sn_str *text) {
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        int32_t id = -1;
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) return SN_OK;
        sn_str_clear(text);
        sn_str_append(text, r->text, r->size);
        if (text->failed) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory", s->name);
        SN_TRY(sn_json_next(r));
        SN_TRY(read_id(r, &id));
        SN_TRY(sn_tokenizer_spec_token(s, text->data, text->size, id, 0));
    }
}

/* "a b" in older files, ["a", "b"] in newer ones. The current token begins the merge. */
static sn_status read_merge(sn_json *r, sn_tokenizer_spec *s, sn_str *text) {
    if (r->type == SN_JSON_STRING) {
        const char *space = r->size > 1 ? memchr(r->text + 1, ' ', r->size - 1) : NULL;
        if (!space || space + 1 == r->text + r->size) return sn_json_fail(r, "wanted two tokens, found \"%.64s\"", r->text);
        return sn_tokenizer_spec_merge(s, r->text, (size_t)(space - r->text), space + 1, r->size - (size_t)(space + 1 - r->text));
    }
    if (r->type != SN_JSON_ARRAY) return sn_json_fail(r, "wanted string or array, found %s", sn_json_type_name(r->type));
    SN_TRY(sn_json_want(r, SN_JSON_STRING));
    sn_str_clear(text);
    sn_str_append(text, r->text, r->size);
    if (text->failed) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory", s->name);
    SN_TRY(sn_json_want(r, SN_JSON_STRING));
    SN_TRY(sn_tokenizer_spec_merge(s, text->data, text->size, r->text, r->size));
    return sn_json_want(r, SN_JSON_ARRAY_END);
}

static sn_status read_merges(sn_json *r, sn_tokenizer_spec *s, sn_str *text) {
    SN_TRY(sn_json_want(r, SN_JSON_ARRAY));
    for (size_t i = 0;; i++) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_ARRAY_END) return SN_OK;
        sn_status status = read_merge(r, s, text);
        if (status != SN_OK) return sn_fail_in(status, "merges[%zu]", i);
    }
}

/* A text that may be null: `text` is then empty. */
static sn_status read_text(sn_json *r, sn_str *text) {
    SN_TRY(sn_json_next(r));
    sn_str_clear(text);
    sn_str_append(text, "", 0);
    if (r->type == SN_JSON_NULL) return SN_OK;
    if (r->type != SN_JSON_STRING) return sn_json_fail(r, "wanted string or null, found %s", sn_json_type_name(r->type));
    sn_str_append(text, r->text, r->size);
    return text->failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: no memory", r->name) : SN_OK;
}

typedef struct model_state {
    sn_str text, unk_token; /* text: of the token just read */
    bool vocab, merges;
} model_state;

static sn_status read_model_key(sn_json *r, sn_tokenizer_spec *s, model_state *m) {
    if (sn_json_is(r, "type")) {
        SN_TRY(sn_json_want(r, SN_JSON_STRING));
        if (!sn_json_is(r, "BPE")) return sn_fail(SN_ERR_UNSUPPORTED, "%s: model.type: wanted BPE, found \"%.64s\"", s->name, r->text);
        return SN_OK;
    }
    if (sn_json_is(r, "vocab")) {
        if (m->vocab) return sn_json_fail(r, "vocab stands twice");
        m->vocab = true;
        sn_status status = read_vocab(r, s, &m->text);
        return status == SN_OK ? SN_OK : sn_fail_in(status, "vocab");
    }
    if (sn_json_is(r, "merges")) {
        if (m->merges) return sn_json_fail(r, "merges stand twice");
        m->merges = true;
        return read_merges(r, s, &m->text);
    }
    if (sn_json_is(r, "unk_token")) return read_text(r, &m->unk_token);
    if (sn_json_is(r, "byte_fallback")) return sn_json_read_bool(r, &s->byte_fallback);
    if (sn_json_is(r, "ignore_merges")) return sn_json_read_bool(r, &s->ignore_merges);
    if (sn_json_is(r, "fuse_unk")) return sn_json_read_bool(r, &s->fuse_unk);
    if (sn_json_is(r, "continuing_subword_prefix") || sn_json_is(r, "end_of_word_suffix")) {
        SN_TRY(read_text(r, &m->text));
        return m->text.size ? sn_fail(SN_ERR_UNSUPPORTED, "%s: model: a subword prefix or suffix \"%.64s\"", s->name, m->text.data) : SN_OK;
    }
    return sn_json_skip(r); /* dropout is for training vocabularies */
}

static sn_status read_model(sn_json *r, sn_tokenizer_spec *s, model_state *m) {
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        sn_status status = read_model_key(r, s, m);
        if (status != SN_OK) return status == SN_ERR_FORMAT ? sn_fail_in(status, "model") : status;
    }
    if (!m->vocab) return sn_json_fail(r, "model.vocab is missing");
    if (!m->merges) return sn_json_fail(r, "model.merges is missing");
    return SN_OK;
}

static sn_status read_document(sn_json *r, sn_tokenizer_spec *s, model_state *m) {
    static const char *const roles[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    unsigned seen = 0;
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        unsigned key = 0;
        while (key < 4 && !sn_json_is(r, roles[key])) key++;
        if (key == 4 && sn_json_is(r, "model")) key = 5;
        if (key == 4 && sn_json_is(r, "added_tokens")) key = 6;
        if (key != 4 && (seen >> key & 1)) return sn_json_fail(r, "%.32s stands twice", r->text);
        seen |= 1u << key;
        if (key < 4) SN_TRY(sn_read_component(r, (sn_component_role)key, s));
        else if (key == 5) SN_TRY(read_model(r, s, m));
        else if (key == 6) SN_TRY(read_added_tokens(r, s, &m->text));
        else SN_TRY(sn_json_skip(r));
    }
    if (!(seen >> 5 & 1)) return sn_json_fail(r, "model is missing");
    SN_TRY(sn_json_want(r, SN_JSON_EOF));
    if (!m->unk_token.size) return SN_OK;
    s->model_unk = s->unk = sn_spec_find(s, m->unk_token.data, m->unk_token.size);
    return s->unk >= 0 ? SN_OK
                       : sn_fail(SN_ERR_FORMAT, "%s: model.unk_token: \"%.64s\" is not in the vocabulary", s->name, m->unk_token.data);
}

/* The vocabulary of a space-marked model is kept with plain spaces: what turns spaces into U+2581 is turned round, which
 * maps the same texts to the same symbols. */
static sn_status unmark_spaces(sn_tokenizer_spec *s) {
    static const char mark[] = "\xE2\x96\x81";
    bool turned = false;
    size_t kept = 0;
    for (size_t i = 0; i < s->normalize_count; i++) {
        sn_normalize_spec *step = &s->normalize[i];
        if (step->kind == SN_NORMALIZE_PREPEND && !strcmp(step->to, mark)) memcpy(step->to, " ", 2);
        else if (step->kind == SN_NORMALIZE_REPLACE && !strcmp(step->from, " ") && !strcmp(step->to, mark)) {
            char *swap = step->from;
            step->from = step->to;
            step->to = swap;
            turned = true;
        }
    }
    if (!turned) return sn_fail(SN_ERR_UNSUPPORTED, "%s: decoder: U+2581 becomes a space, but no step makes U+2581 of one", s->name);
    for (size_t i = 0; i < s->split_count; i++) {
        sn_split_spec step = s->split[i];
        if (step.kind == SN_SPLIT_LITERAL && !strcmp(step.pattern, " ")) continue; /* no space is left where this stands */
        if (step.kind == SN_SPLIT_LITERAL && !strcmp(step.pattern, mark)) {
            memcpy(step.pattern, " ", 2);
            step.pattern_size = 1;
        } else if (step.kind < SN_SPLIT_PREFIX_SPACE) {
            return sn_fail(SN_ERR_UNSUPPORTED, "%s: pre_tokenizer: step %zu in a model that marks spaces", s->name, i);
        }
        s->split[kept++] = step;
    }
    s->split_count = kept;
    return SN_OK;
}

/* A token of tokenizer_config.json: null, a text, or an object with "content". -1 when null. */
static sn_status read_config_token(sn_json *r, const sn_tokenizer_spec *s, int32_t *out) {
    SN_TRY(sn_json_next(r));
    if (r->type == SN_JSON_NULL) return SN_OK;
    if (r->type == SN_JSON_STRING) {
        *out = sn_spec_find(s, r->text, r->size); /* a token that the vocabulary lacks is no token */
        return SN_OK;
    }
    if (r->type != SN_JSON_OBJECT) return sn_json_fail(r, "wanted string or object, found %s", sn_json_type_name(r->type));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) return SN_OK;
        if (sn_json_is(r, "content")) {
            SN_TRY(sn_json_want(r, SN_JSON_STRING));
            *out = sn_spec_find(s, r->text, r->size);
        } else SN_TRY(sn_json_skip(r));
    }
}

typedef struct config {
    int32_t bos, eos, pad, unk;
    int add_bos, add_eos; /* -1: not said */
} config;

static sn_status read_add(sn_json *r, int *out) {
    SN_TRY(sn_json_next(r));
    if (r->type == SN_JSON_NULL) return SN_OK;
    bool value;
    SN_TRY(sn_json_bool(r, &value));
    *out = value;
    return SN_OK;
}

static sn_status read_config(sn_json *r, const sn_tokenizer_spec *s, config *c) {
    const struct {
        const char *key;
        int32_t *id;
    } tokens[] = {{"bos_token", &c->bos}, {"eos_token", &c->eos}, {"pad_token", &c->pad}, {"unk_token", &c->unk}};
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) return sn_json_want(r, SN_JSON_EOF);
        size_t i = 0;
        while (i < 4 && !sn_json_is(r, tokens[i].key)) i++;
        sn_status status;
        if (i < 4) status = read_config_token(r, s, tokens[i].id);
        else if (sn_json_is(r, "add_bos_token")) status = read_add(r, &c->add_bos);
        else if (sn_json_is(r, "add_eos_token")) status = read_add(r, &c->add_eos);
        else status = sn_json_skip(r);
        if (status != SN_OK && i < 4) return sn_fail_in(status, "%s", tokens[i].key);
        SN_TRY(status);
    }
}

/* tokenizer_config.json's word on BOS and EOS goes over the post-processor's. */
static void apply_config(sn_tokenizer_spec *s, const config *c) {
    if (c->bos >= 0) s->bos = c->bos;
    if (c->pad >= 0) s->pad = c->pad;
    if (c->unk >= 0) s->unk = c->unk;
    if (c->eos >= 0) s->eos[s->eos_count++] = c->eos;
    bool has_bos = s->prefix_count && s->prefix[s->prefix_count - 1] == s->bos;
    bool has_eos = s->suffix_count && s->suffix[0] == c->eos;
    if (s->bos >= 0 && c->add_bos == 1 && !s->prefix_count) s->prefix[s->prefix_count++] = s->bos;
    if (c->add_bos == 0 && has_bos) s->prefix_count--;
    if (c->eos >= 0 && c->add_eos == 1 && !s->suffix_count) s->suffix[s->suffix_count++] = c->eos;
    if (c->add_eos == 0 && has_eos && s->suffix_count == 1) s->suffix_count = 0;
}

sn_status sn_tokenizer_spec_from_json(const char *json, size_t size, const char *config_text, size_t config_size, sn_tokenizer_spec *s) {
    model_state m = {0};
    sn_json r;
    sn_json_start(&r, s->name, json, size);
    sn_status status = read_document(&r, s, &m);
    sn_json_end(&r);
    if (status == SN_OK && s->prefix_count == 1) s->bos = s->prefix[0];
    if (status == SN_OK && config_text) {
        config c = {-1, -1, -1, -1, -1, -1};
        sn_json_start(&r, "tokenizer_config.json", config_text, config_size);
        status = read_config(&r, s, &c);
        sn_json_end(&r);
        if (status == SN_OK) apply_config(s, &c);
    }
    if (status == SN_OK && s->space_mark) status = unmark_spaces(s);
    sn_str_free(&m.text);
    sn_str_free(&m.unk_token);
    return status;
}

sn_status sn_tokenizer_from_json(const char *name, const char *json, size_t size, const char *config_text, size_t config_size,
                                 sn_tokenizer **out) {
    sn_pool pool = {0};
    sn_tokenizer_spec spec;
    *out = NULL;
    sn_tokenizer_spec_start(&spec, name, &pool);
    sn_status status = sn_tokenizer_spec_from_json(json, size, config_text, config_size, &spec);
    if (status == SN_OK) status = sn_tokenizer_open(&spec, out);
    sn_tokenizer_spec_free(&spec);
    sn_pool_free(&pool);
    return status;
}
