/* tokenizer.json and tokenizer_config.json of a GGUF. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/names.h"
#include "io/tokenizer_export.h"
#include "io/tokenizer_spec.h"

#define MARK "\xE2\x96\x81"

static sn_status done(const sn_tokenizer_spec *s, const sn_str *out) {
    return out->failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate tokenizer.json", s->name) : SN_OK;
}

static const char *text_of(const sn_tokenizer_spec *s, int32_t id, size_t *size) {
    for (size_t i = 0; i < s->added_count; i++)
        if (s->added[i].id == id) return *size = s->added[i].size, s->text.data + s->added[i].at;
    for (size_t i = 0; i < s->token_count; i++)
        if (s->tokens[i].id == id) return *size = s->tokens[i].size, s->text.data + s->tokens[i].at;
    return NULL;
}

static void add_id_text(const sn_tokenizer_spec *s, int32_t id, sn_str *out) {
    size_t size = 0;
    const char *text = text_of(s, id, &size);
    sn_str_json(out, text ? text : "", size);
}

static const char *yes(bool b) { return b ? "true" : "false"; }

static void added_tokens(const sn_tokenizer_spec *s, sn_str *out) {
    sn_str_add(out, "  \"added_tokens\": [");
    for (size_t i = 0; i < s->added_count; i++) {
        const sn_added_token *a = &s->added[i];
        sn_str_printf(out, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", a->id);
        sn_str_json(out, s->text.data + a->at, a->size);
        sn_str_printf(out, ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, \"special\": %s}",
                      yes(a->single_word), yes(a->lstrip), yes(a->rstrip), yes(a->normalized), yes(a->special));
    }
    sn_str_add(out, "],\n");
}

static void normalizer(const sn_tokenizer_spec *s, sn_str *out) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    sn_str_add(out, "  \"normalizer\": ");
    if (!s->normalize_count) sn_str_add(out, "null");
    else sn_str_add(out, "{\"type\": \"Sequence\", \"normalizers\": [");
    for (size_t i = 0; i < s->normalize_count; i++) {
        const sn_normalize_spec *step = &s->normalize[i];
        /* A spec keeps the vocabulary of a space-marked model with plain spaces; the file marks them. */
        const char *from = s->space_mark ? " " : step->from, *to = s->space_mark ? MARK : step->to;
        if (i) sn_str_add(out, ", ");
        if (step->kind <= SN_NORMALIZE_NFKD) {
            sn_str_printf(out, "{\"type\": \"%s\"}", forms[step->kind]);
            continue;
        }
        sn_str_add(out, step->kind == SN_NORMALIZE_PREPEND ? "{\"type\": \"Prepend\", \"prepend\": "
                                                           : "{\"type\": \"Replace\", \"pattern\": {\"String\": ");
        if (step->kind == SN_NORMALIZE_REPLACE) {
            sn_str_json(out, from, strlen(from));
            sn_str_add(out, "}, \"content\": ");
        }
        sn_str_json(out, to, strlen(to));
        sn_str_char(out, '}');
    }
    sn_str_add(out, s->normalize_count ? "]},\n" : ",\n");
}

static bool is_gpt2_split(const sn_split_spec *p) {
    return p->kind == SN_SPLIT_REGEX && p->behavior == SN_SPLIT_ISOLATED && !p->invert && !strcmp(p->pattern, sn_gpt2_pattern);
}

static void one_split(const sn_split_spec *p, sn_str *out) {
    static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    if (p->kind == SN_SPLIT_DIGITS) {
        sn_str_printf(out, "{\"type\": \"Digits\", \"individual_digits\": %s}", yes(p->behavior == SN_SPLIT_ISOLATED));
        return;
    }
    sn_str_add(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    sn_str_json(out, p->pattern, p->pattern_size);
    sn_str_printf(out, "}, \"behavior\": \"%s\", \"invert\": %s}", behaviors[p->behavior], yes(p->invert));
}

/* The splits of sn_tokenizer_spec_from_gguf: digits and regular expressions. ByteLevel brings GPT-2's own. */
static void pre_tokenizer(const sn_tokenizer_spec *s, sn_str *out) {
    if (!s->byte_level) {
        sn_str_add(out, "  \"pre_tokenizer\": null,\n");
        return;
    }
    size_t n = s->split_count;
    bool regex = n && is_gpt2_split(&s->split[n - 1]);
    sn_str_add(out, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    for (size_t i = 0; i < n - regex; i++) {
        one_split(&s->split[i], out);
        sn_str_add(out, ", ");
    }
    sn_str_printf(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": %s}]},\n",
                  yes(regex));
}

static void add_affix(const sn_tokenizer_spec *s, const int32_t *ids, size_t n, sn_str *out) {
    for (size_t i = 0; i < n; i++) {
        sn_str_add(out, "{\"SpecialToken\": {\"id\": ");
        add_id_text(s, ids[i], out);
        sn_str_add(out, ", \"type_id\": 0}}, ");
    }
}

static void post_processor(const sn_tokenizer_spec *s, sn_str *out) {
    size_t count = s->prefix_count + s->suffix_count;
    sn_str_add(out, "  \"post_processor\": ");
    if (!count) {
        sn_str_add(out, "null,\n");
        return;
    }
    for (int pair = 0; pair < 2; pair++) { /* a pair is the same around each of two texts */
        sn_str_add(out, pair ? ", \"pair\": [" : "{\"type\": \"TemplateProcessing\", \"single\": [");
        for (int text = 0; text <= pair; text++) {
            if (text) sn_str_add(out, ", ");
            add_affix(s, s->prefix, s->prefix_count, out);
            sn_str_printf(out, "{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}", "AB"[text], text);
            if (s->suffix_count) sn_str_add(out, ", ");
            size_t before = out->size;
            add_affix(s, s->suffix, s->suffix_count, out);
            if (out->size > before) out->data[out->size -= 2] = 0;
        }
        sn_str_char(out, ']');
    }
    sn_str_add(out, ", \"special_tokens\": {");
    for (size_t i = 0; i < count; i++) {
        int32_t id = i < s->prefix_count ? s->prefix[i] : s->suffix[i - s->prefix_count];
        bool again = false;
        for (size_t k = 0; k < i; k++) again |= id == (k < s->prefix_count ? s->prefix[k] : s->suffix[k - s->prefix_count]);
        if (again) continue;
        if (i) sn_str_add(out, ", ");
        add_id_text(s, id, out);
        sn_str_add(out, ": {\"id\": ");
        add_id_text(s, id, out);
        sn_str_printf(out, ", \"ids\": [%d], \"tokens\": [", id);
        add_id_text(s, id, out);
        sn_str_add(out, "]}");
    }
    sn_str_add(out, "}},\n");
}

static void decoder(const sn_tokenizer_spec *s, sn_str *out) {
    if (s->byte_level) {
        sn_str_add(out,
                   "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},\n");
        return;
    }
    sn_str_add(out, "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"" MARK
                    "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
    if (s->strip_space) sn_str_add(out, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
    sn_str_add(out, "]},\n");
}

static void add_merge(sn_str *out, bool first, const char *left, size_t left_size, const char *right, size_t right_size) {
    sn_str_add(out, first ? "\n      [" : ",\n      [");
    sn_str_json(out, left, left_size);
    sn_str_add(out, ", ");
    sn_str_json(out, right, right_size);
    sn_str_char(out, ']');
}

/* One way to make token `whole` of two tokens. */
typedef struct pair {
    float score;
    uint32_t whole, left; /* index of the token, bytes of its left half */
} pair;

static int by_score(const void *a, const void *b) {
    const pair *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->whole != y->whole) return x->whole < y->whole ? -1 : 1;
    return (x->left > y->left) - (x->left < y->left);
}

/* SentencePiece merges any neighbours that form a token, the best score first: the same as this list of merges. */
static sn_status merges_of_scores(const sn_tokenizer_spec *s, sn_str *out) {
    sn_names texts = {0};
    pair *pairs = NULL;
    size_t count = 0, capacity = 0, index;
    bool added;
    sn_status status = SN_OK;
    for (size_t i = 0; status == SN_OK && i < s->token_count; i++)
        status = sn_names_add(&texts, s->text.data + s->tokens[i].at, s->tokens[i].size, &index, &added);
    for (size_t i = 0; status == SN_OK && i < s->token_count; i++) {
        const sn_token_spec *t = &s->tokens[i];
        const char *text = s->text.data + t->at;
        bool special = false;
        for (size_t k = 0; k < s->added_count; k++) special |= s->added[k].id == t->id;
        for (uint32_t left = 1; !special && status == SN_OK && left < t->size; left++) {
            if (((unsigned char)text[left] & 0xc0) == 0x80) continue; /* inside a character */
            if (!sn_names_find(&texts, text, left, &index) || !sn_names_find(&texts, text + left, t->size - left, &index)) continue;
            status = SN_GROW(pairs, count, capacity);
            if (status == SN_OK) pairs[count++] = (pair){t->score, (uint32_t)i, left};
        }
    }
    if (status == SN_OK && count) qsort(pairs, count, sizeof *pairs, by_score);
    for (size_t i = 0; status == SN_OK && i < count; i++) {
        const sn_token_spec *t = &s->tokens[pairs[i].whole];
        add_merge(out, !i, s->text.data + t->at, pairs[i].left, s->text.data + t->at + pairs[i].left, t->size - pairs[i].left);
    }
    sn_names_free(&texts);
    sn_free(pairs);
    return status;
}

static sn_status tokenizer_text(const sn_tokenizer_spec *s, sn_str *out) {
    sn_str_add(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    added_tokens(s, out);
    normalizer(s, out);
    pre_tokenizer(s, out);
    post_processor(s, out);
    decoder(s, out);
    sn_str_add(out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ");
    if (s->model_unk >= 0) add_id_text(s, s->model_unk, out);
    else sn_str_add(out, "null");
    sn_str_printf(out, ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": %s,\n",
                  yes(s->fuse_unk || s->merge_by_score));
    sn_str_printf(out, "    \"byte_fallback\": %s,\n    \"ignore_merges\": %s,\n    \"vocab\": {", yes(s->byte_fallback),
                  yes(s->ignore_merges));
    for (size_t i = 0; i < s->token_count; i++) {
        sn_str_add(out, i ? ",\n      " : "\n      ");
        sn_str_json(out, s->text.data + s->tokens[i].at, s->tokens[i].size);
        sn_str_printf(out, ": %d", s->tokens[i].id);
    }
    sn_str_add(out, "\n    },\n    \"merges\": [");
    if (s->merge_by_score) SN_TRY(merges_of_scores(s, out));
    for (size_t i = 0; i < s->merge_count; i++) {
        const sn_merge_spec *m = &s->merges[i];
        add_merge(out, !i, s->text.data + m->at, m->left, s->text.data + m->at + m->left, m->right);
    }
    sn_str_add(out, "\n    ]\n  }\n}\n");
    return done(s, out);
}

static sn_status config_text(const sn_tokenizer_spec *s, int64_t max_length, sn_str *out) {
    const struct {
        const char *key;
        int32_t id;
    } tokens[] = {{"bos_token", s->bos}, {"eos_token", s->eos_count ? s->eos[0] : -1}, {"pad_token", s->pad}, {"unk_token", s->unk}};
    sn_str_printf(out, "{\n  \"add_bos_token\": %s,\n  \"add_eos_token\": %s,\n  \"add_prefix_space\": false,\n", yes(s->prefix_count),
                  yes(s->suffix_count));
    for (size_t i = 0; i < 4; i++) {
        if (tokens[i].id < 0) continue;
        sn_str_printf(out, "  \"%s\": ", tokens[i].key);
        add_id_text(s, tokens[i].id, out);
        sn_str_add(out, ",\n");
    }
    sn_str_printf(out,
                  "  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %" PRId64
                  ",\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
                  max_length);
    return done(s, out);
}

sn_status sn_tokenizer_json_of_gguf(const sn_gguf *g, int64_t max_length, sn_str *json, sn_str *config) {
    sn_pool pool = {0};
    sn_tokenizer_spec spec;
    sn_tokenizer_spec_start(&spec, g->path, &pool);
    sn_status s = sn_tokenizer_spec_from_gguf(g, &spec);
    if (s == SN_OK) s = tokenizer_text(&spec, json);
    if (s == SN_OK) s = config_text(&spec, max_length, config);
    sn_tokenizer_spec_free(&spec);
    sn_pool_free(&pool);
    return s;
}
