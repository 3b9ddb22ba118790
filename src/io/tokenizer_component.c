/* Normalizers, pre-tokenizers, post-processors and decoders of tokenizer.json (Hugging Face `tokenizers` 0.23). */
#include <string.h>

#include "io/tokenizer_json.h"

#define MAX_DEPTH 8     /* of Sequences */
#define MAX_TEMPLATE 16 /* items and special tokens of a TemplateProcessing */

typedef struct template_item {
    const char *name; /* NULL: the text itself */
    int32_t ids[SN_TOKENIZER_MAX_AFFIX];
    size_t count;
} template_item;

/* The keys of all components together. Texts are in the spec's pool, NULL when absent. */
typedef struct component {
    sn_component_role role;
    char *type, *pattern, *behavior, *content, *prepend, *replacement, *prepend_scheme;
    size_t pattern_size;
    bool regex, invert, individual_digits, add_prefix_space, use_regex, split, has_children;
    template_item single[MAX_TEMPLATE], special[MAX_TEMPLATE];
    size_t single_count, special_count;
    int32_t cls, sep;
} component;

static const char *const role_names[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};

static sn_status keep_text(sn_json *r, sn_tokenizer_spec *s, char **out, size_t *size) {
    SN_TRY(sn_json_next(r));
    if (r->type == SN_JSON_NULL) return SN_OK;
    if (r->type != SN_JSON_STRING) return sn_json_fail(r, "wanted string, found %s", sn_json_type_name(r->type));
    *out = sn_pool_alloc(s->pool, r->size + 1);
    if (!*out) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory", s->name);
    memcpy(*out, r->text, r->size);
    if (size) *size = r->size;
    else if (strlen(*out) != r->size) return sn_json_fail(r, "a NUL byte in a text");
    return SN_OK;
}

static sn_status read_pattern(sn_json *r, sn_tokenizer_spec *s, component *c) {
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) return SN_OK;
        bool regex = sn_json_is(r, "Regex");
        if (!regex && !sn_json_is(r, "String")) return sn_json_fail(r, "pattern: wanted Regex or String, found \"%.64s\"", r->text);
        c->regex = regex;
        SN_TRY(keep_text(r, s, &c->pattern, &c->pattern_size));
    }
}

/* "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}] */
static sn_status read_single(sn_json *r, sn_tokenizer_spec *s, component *c) {
    SN_TRY(sn_json_want(r, SN_JSON_ARRAY));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_ARRAY_END) return SN_OK;
        if (r->type != SN_JSON_OBJECT) return sn_json_fail(r, "single: wanted object, found %s", sn_json_type_name(r->type));
        if (c->single_count == MAX_TEMPLATE) return sn_json_fail(r, "single: over %d items", MAX_TEMPLATE);
        template_item *item = &c->single[c->single_count++];
        SN_TRY(sn_json_want(r, SN_JSON_KEY));
        bool special = sn_json_is(r, "SpecialToken");
        if (!special && !sn_json_is(r, "Sequence"))
            return sn_json_fail(r, "single: wanted SpecialToken or Sequence, found \"%.64s\"", r->text);
        SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
        char *name = NULL;
        for (;;) {
            SN_TRY(sn_json_next(r));
            if (r->type == SN_JSON_OBJECT_END) break;
            if (sn_json_is(r, "id")) SN_TRY(keep_text(r, s, &name, NULL));
            else SN_TRY(sn_json_skip(r));
        }
        if (!name) return sn_json_fail(r, "single: an item without id");
        item->name = special ? name : NULL;
        SN_TRY(sn_json_want(r, SN_JSON_OBJECT_END));
    }
}

/* "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}} */
static sn_status read_special(sn_json *r, sn_tokenizer_spec *s, component *c) {
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) return SN_OK;
        if (c->special_count == MAX_TEMPLATE) return sn_json_fail(r, "special_tokens: over %d", MAX_TEMPLATE);
        template_item *item = &c->special[c->special_count++];
        item->name = sn_pool_strdup(s->pool, r->text);
        if (!item->name) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory", s->name);
        SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
        for (;;) {
            SN_TRY(sn_json_next(r));
            if (r->type == SN_JSON_OBJECT_END) break;
            if (!sn_json_is(r, "ids")) {
                SN_TRY(sn_json_skip(r));
                continue;
            }
            SN_TRY(sn_json_want(r, SN_JSON_ARRAY));
            for (;;) {
                int64_t id;
                SN_TRY(sn_json_next(r));
                if (r->type == SN_JSON_ARRAY_END) break;
                SN_TRY(sn_json_i64(r, &id));
                if (id < 0 || id >= SN_TOKENIZER_MAX_IDS)
                    return sn_json_fail(r, "special_tokens.ids: %lld is not a token id", (long long)id);
                if (item->count == SN_TOKENIZER_MAX_AFFIX)
                    return sn_json_fail(r, "special_tokens.ids: over %d ids", SN_TOKENIZER_MAX_AFFIX);
                item->ids[item->count++] = (int32_t)id;
            }
        }
    }
}

/* "cls": ["<s>", 0] */
static sn_status read_pair(sn_json *r, int32_t *out) {
    int64_t id;
    SN_TRY(sn_json_want(r, SN_JSON_ARRAY));
    SN_TRY(sn_json_want(r, SN_JSON_STRING));
    SN_TRY(sn_json_read_i64(r, &id));
    if (id < 0 || id >= SN_TOKENIZER_MAX_IDS) return sn_json_fail(r, "%lld is not a token id", (long long)id);
    *out = (int32_t)id;
    return sn_json_want(r, SN_JSON_ARRAY_END);
}

static sn_status unsupported(const sn_tokenizer_spec *s, const component *c, const char *what, const char *found) {
    return sn_fail(SN_ERR_UNSUPPORTED, "%s: %s: %s \"%.64s\" is not supported", s->name, role_names[c->role], what, found ? found : "");
}

static sn_status use_normalizer(sn_tokenizer_spec *s, const component *c) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(c->type, forms[i])) return sn_tokenizer_spec_normalize(s, (sn_normalize_kind)i, "", "");
    if (!strcmp(c->type, "Prepend") && c->prepend) return sn_tokenizer_spec_normalize(s, SN_NORMALIZE_PREPEND, "", c->prepend);
    if (!strcmp(c->type, "Replace") && c->pattern && c->content && !c->regex && *c->pattern)
        return sn_tokenizer_spec_normalize(s, SN_NORMALIZE_REPLACE, c->pattern, c->content);
    return unsupported(s, c, "type", c->type);
}

static sn_status read_behavior(const sn_tokenizer_spec *s, const component *c, sn_split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    for (int i = 0; i < 5; i++)
        if (c->behavior && !strcmp(c->behavior, names[i])) return *out = (sn_split_behavior)i, SN_OK;
    return unsupported(s, c, "behavior", c->behavior);
}

static sn_status regex_split(sn_tokenizer_spec *s, const char *pattern, sn_split_behavior behavior, bool invert) {
    return sn_tokenizer_spec_split(s, SN_SPLIT_REGEX, behavior, invert, pattern, strlen(pattern));
}

static sn_status use_metaspace(sn_tokenizer_spec *s, const component *c) {
    const char *scheme = c->prepend_scheme ? c->prepend_scheme : c->add_prefix_space ? "always" : "never";
    if (!c->replacement || strcmp(c->replacement, "\xE2\x96\x81")) return unsupported(s, c, "replacement", c->replacement);
    s->space_mark = true;
    SN_TRY(sn_tokenizer_spec_normalize(s, SN_NORMALIZE_REPLACE, " ", "\xE2\x96\x81"));
    if (!strcmp(scheme, "always")) SN_TRY(sn_tokenizer_spec_split(s, SN_SPLIT_PREFIX_SPACE, 0, false, "", 0));
    else if (!strcmp(scheme, "first")) SN_TRY(sn_tokenizer_spec_split(s, SN_SPLIT_PREFIX_FIRST, 0, false, "", 0));
    else if (strcmp(scheme, "never")) return unsupported(s, c, "prepend_scheme", scheme);
    return c->split ? sn_tokenizer_spec_split(s, SN_SPLIT_LITERAL, SN_SPLIT_MERGED_WITH_NEXT, false, "\xE2\x96\x81", 3) : SN_OK;
}

static sn_status use_pre_tokenizer(sn_tokenizer_spec *s, const component *c) {
    sn_split_behavior behavior;
    /* ByteLevel rewrites the text in its alphabet: what follows would not see the text. */
    if (s->byte_level) return unsupported(s, c, "a step after ByteLevel,", c->type);
    if (!strcmp(c->type, "ByteLevel")) {
        s->byte_level = true;
        if (c->add_prefix_space) SN_TRY(sn_tokenizer_spec_split(s, SN_SPLIT_PREFIX_SPACE, 0, false, "", 0));
        return c->use_regex ? regex_split(s, sn_gpt2_pattern, SN_SPLIT_ISOLATED, false) : SN_OK;
    }
    if (!strcmp(c->type, "Split") && c->pattern) {
        SN_TRY(read_behavior(s, c, &behavior));
        return sn_tokenizer_spec_split(s, c->regex ? SN_SPLIT_REGEX : SN_SPLIT_LITERAL, behavior, c->invert, c->pattern, c->pattern_size);
    }
    if (!strcmp(c->type, "Digits"))
        return sn_tokenizer_spec_split(s, SN_SPLIT_DIGITS, c->individual_digits ? SN_SPLIT_ISOLATED : SN_SPLIT_CONTIGUOUS, false, "", 0);
    if (!strcmp(c->type, "Punctuation")) {
        SN_TRY(read_behavior(s, c, &behavior));
        return regex_split(s, "[\\p{P}!-/:-@\\[-`{-~]", behavior, false);
    }
    if (!strcmp(c->type, "Whitespace")) return regex_split(s, "\\w+|[^\\w\\s]+", SN_SPLIT_REMOVED, true);
    if (!strcmp(c->type, "WhitespaceSplit")) return regex_split(s, "\\s", SN_SPLIT_REMOVED, false);
    if (!strcmp(c->type, "Metaspace")) return use_metaspace(s, c);
    return unsupported(s, c, "type", c->type);
}

static sn_status affix(sn_tokenizer_spec *s, bool before, const int32_t *ids, size_t count) {
    size_t *have = before ? &s->prefix_count : &s->suffix_count;
    if (*have + count > SN_TOKENIZER_MAX_AFFIX)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: post_processor: over %d tokens around a text", s->name, SN_TOKENIZER_MAX_AFFIX);
    if (count) memcpy((before ? s->prefix : s->suffix) + *have, ids, count * sizeof *ids);
    *have += count;
    return SN_OK;
}

static sn_status use_post_processor(sn_tokenizer_spec *s, const component *c) {
    if (!strcmp(c->type, "ByteLevel")) return SN_OK; /* trims offsets only */
    if (!strcmp(c->type, "RobertaProcessing") || !strcmp(c->type, "BertProcessing")) {
        if (c->cls < 0 || c->sep < 0) return sn_fail(SN_ERR_FORMAT, "%s: post_processor: cls or sep is missing", s->name);
        SN_TRY(affix(s, true, &c->cls, 1));
        return affix(s, false, &c->sep, 1);
    }
    if (strcmp(c->type, "TemplateProcessing")) return unsupported(s, c, "type", c->type);
    bool before = true;
    for (size_t i = 0; i < c->single_count; i++) {
        size_t k = 0;
        if (!c->single[i].name) {
            if (!before) return unsupported(s, c, "single:", "two Sequences");
            before = false;
            continue;
        }
        while (k < c->special_count && strcmp(c->special[k].name, c->single[i].name)) k++;
        if (k == c->special_count)
            return sn_fail(SN_ERR_FORMAT, "%s: post_processor: special_tokens has no \"%.64s\"", s->name, c->single[i].name);
        SN_TRY(affix(s, before, c->special[k].ids, c->special[k].count));
    }
    if (before) return sn_fail(SN_ERR_FORMAT, "%s: post_processor: single has no Sequence", s->name);
    return SN_OK;
}

/* Of the decoders only two facts matter: is U+2581 a space, and does the first space go. */
static sn_status use_decoder(sn_tokenizer_spec *s, const component *c) {
    if (!strcmp(c->type, "ByteLevel") || !strcmp(c->type, "ByteFallback") || !strcmp(c->type, "Fuse")) return SN_OK;
    if (!strcmp(c->type, "Replace") && c->pattern && !strcmp(c->pattern, "\xE2\x96\x81") && c->content && !strcmp(c->content, " ")) {
        s->space_mark = true;
        return SN_OK;
    }
    if (!strcmp(c->type, "Strip") && c->content && !strcmp(c->content, " ")) return s->strip_space = true, SN_OK;
    if (!strcmp(c->type, "Metaspace")) {
        s->space_mark = true;
        s->strip_space = !c->prepend_scheme || strcmp(c->prepend_scheme, "never");
        return SN_OK;
    }
    return unsupported(s, c, "type", c->type);
}

static sn_status read_object(sn_json *r, sn_component_role role, sn_tokenizer_spec *s, int depth);

static sn_status read_children(sn_json *r, sn_component_role role, sn_tokenizer_spec *s, int depth) {
    SN_TRY(sn_json_want(r, SN_JSON_ARRAY));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_ARRAY_END) return SN_OK;
        SN_TRY(read_object(r, role, s, depth + 1));
    }
}

static sn_status read_key(sn_json *r, sn_tokenizer_spec *s, component *c, int depth) {
    static const char *const children[] = {"normalizers", "pretokenizers", "processors", "decoders"};
    const struct {
        const char *key;
        char **text;
    } texts[] = {{"type", &c->type},       {"behavior", &c->behavior},       {"content", &c->content},
                 {"prepend", &c->prepend}, {"replacement", &c->replacement}, {"prepend_scheme", &c->prepend_scheme}};
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"invert", &c->invert},
                 {"individual_digits", &c->individual_digits},
                 {"add_prefix_space", &c->add_prefix_space},
                 {"use_regex", &c->use_regex},
                 {"split", &c->split}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (sn_json_is(r, texts[i].key)) return keep_text(r, s, texts[i].text, NULL);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (sn_json_is(r, flags[i].key)) return sn_json_read_bool(r, flags[i].flag);
    if (sn_json_is(r, "pattern")) return read_pattern(r, s, c);
    if (sn_json_is(r, children[c->role])) {
        c->has_children = true;
        return read_children(r, c->role, s, depth);
    }
    if (c->role == SN_ROLE_POST_PROCESSOR) {
        if (sn_json_is(r, "single")) return read_single(r, s, c);
        if (sn_json_is(r, "special_tokens")) return read_special(r, s, c);
        if (sn_json_is(r, "cls")) return read_pair(r, &c->cls);
        if (sn_json_is(r, "sep")) return read_pair(r, &c->sep);
    }
    return sn_json_skip(r);
}

/* The current token begins the component. */
static sn_status read_object(sn_json *r, sn_component_role role, sn_tokenizer_spec *s, int depth) {
    if (r->type != SN_JSON_OBJECT) return sn_json_fail(r, "wanted object, found %s", sn_json_type_name(r->type));
    if (depth > MAX_DEPTH) return sn_json_fail(r, "Sequences nest over %d deep", MAX_DEPTH);
    component c = {.role = role, .use_regex = true, .split = true, .cls = -1, .sep = -1};
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        SN_TRY(read_key(r, s, &c, depth));
    }
    if (!c.type) return sn_json_fail(r, "type is missing");
    if (!strcmp(c.type, "Sequence")) return SN_OK; /* its children are in place */
    if (c.has_children) return sn_json_fail(r, "wanted type Sequence, found \"%.64s\"", c.type);
    switch (role) {
    case SN_ROLE_NORMALIZER: return use_normalizer(s, &c);
    case SN_ROLE_PRE_TOKENIZER: return use_pre_tokenizer(s, &c);
    case SN_ROLE_POST_PROCESSOR: return use_post_processor(s, &c);
    case SN_ROLE_DECODER: return use_decoder(s, &c);
    }
    return SN_OK;
}

sn_status sn_read_component(sn_json *r, sn_component_role role, sn_tokenizer_spec *s) {
    SN_TRY(sn_json_next(r));
    if (r->type == SN_JSON_NULL) return SN_OK;
    sn_status status = read_object(r, role, s, 0);
    return status == SN_ERR_FORMAT ? sn_fail_in(status, "%s", role_names[role]) : status;
}
