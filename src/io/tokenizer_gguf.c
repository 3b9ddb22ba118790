/* A tokenizer from GGUF metadata (keys tokenizer.ggml.*, see the GGUF specification). */
#include <stdio.h>
#include <string.h>

#include "io/gguf.h"
#include "io/tokenizer_spec.h"

/* The published split patterns of the models whose names stand in tokenizer.ggml.pre. */
#define LLAMA3 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}" REST
#define O200K BEFORE UPPER "*" LOWER "+" ENDING "|" BEFORE UPPER "+" LOWER "*" ENDING "|\\p{N}{1,3}" REST

static const struct pre {
    const char *names;   /* space-separated, with a space at both ends */
    const char *pattern; /* NULL: GPT-2's */
    bool digits;         /* every digit is a piece of its own first */
    bool ignore_merges, add_bos;
    bool nfc; /* the published tokenizer normalizes; GGUF has no key for it */
} pres[] = {
    {" gpt-2 phi-2 mpt olmo jais gigachat ", NULL, false, false, false, false},
    {" smollm starcoder refact command-r codeshell minerva-7b exaone ", NULL, true, false, false, false},
    {" llama-bpe llama3 llama-v3 falcon3 ", LLAMA3, false, true, true, false},
    {" dbrx smaug-bpe ", LLAMA3, false, false, false, false},
    {" qwen2 ", QWEN2, false, false, false, true},
    {" stablelm2 deepseek-r1-qwen megrez ", QWEN2, false, false, false, false},
    {" tekken ", TEKKEN, false, true, true, false},
    {" gpt-4o llama4 ", O200K, false, false, false, false},
};

static sn_status read_pre(const sn_gguf *g, sn_tokenizer_spec *s, bool *add_bos) {
    const char *name;
    SN_TRY(sn_gguf_get_string(g, "tokenizer.ggml.pre", &name));
    char word[72] = "";
    if (*name && strlen(name) < 64 && !strchr(name, ' ')) snprintf(word, sizeof word, " %s ", name);
    for (size_t i = 0; i < sizeof pres / sizeof *pres && *word; i++) {
        if (!strstr(pres[i].names, word)) continue;
        const char *pattern = pres[i].pattern ? pres[i].pattern : sn_gpt2_pattern;
        if (pres[i].digits) SN_TRY(sn_tokenizer_spec_split(s, SN_SPLIT_DIGITS, SN_SPLIT_ISOLATED, false, "", 0));
        if (pres[i].nfc) SN_TRY(sn_tokenizer_spec_normalize(s, SN_NORMALIZE_NFC, "", ""));
        s->ignore_merges = pres[i].ignore_merges;
        *add_bos = pres[i].add_bos;
        return sn_tokenizer_spec_split(s, SN_SPLIT_REGEX, SN_SPLIT_ISOLATED, false, pattern, strlen(pattern));
    }
    return sn_fail(SN_ERR_UNSUPPORTED, "%s: key tokenizer.ggml.pre: no split is known for \"%.64s\"", g->path, name);
}

bool sn_gguf_pre_of(const sn_tokenizer_spec *s, char name[64]) {
    bool nfc = s->normalize_count == 1 && s->normalize[0].kind == SN_NORMALIZE_NFC;
    if (!s->byte_level || s->normalize_count != nfc) return false;
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        const struct pre *p = &pres[i];
        if (p->nfc != nfc || p->ignore_merges != s->ignore_merges || s->split_count != 1u + p->digits) continue;
        const sn_split_spec *digits = &s->split[0], *last = &s->split[p->digits];
        if (p->digits && (digits->kind != SN_SPLIT_DIGITS || digits->behavior != SN_SPLIT_ISOLATED)) continue;
        if (last->kind != SN_SPLIT_REGEX || last->behavior != SN_SPLIT_ISOLATED || last->invert) continue;
        if (strcmp(last->pattern, p->pattern ? p->pattern : sn_gpt2_pattern)) continue;
        snprintf(name, 64, "%.*s", (int)strcspn(p->names + 1, " "), p->names + 1);
        return true;
    }
    return false;
}

static sn_status read_optional_bool(const sn_gguf *g, const char *key, bool *out) {
    return sn_gguf_find(g, key) ? sn_gguf_get_bool(g, key, out) : SN_OK;
}

static sn_status read_optional_id(const sn_gguf *g, const char *key, int32_t *out) {
    uint32_t id;
    if (!sn_gguf_find(g, key)) return SN_OK;
    SN_TRY(sn_gguf_get_u32(g, key, &id));
    if (id == UINT32_MAX) return SN_OK; /* some writers mean "none" */
    if (id >= SN_TOKENIZER_MAX_IDS) return sn_fail(SN_ERR_FORMAT, "%s: key %s: %u is not a token id", g->path, key, id);
    *out = (int32_t)id;
    return SN_OK;
}

/* Tokens that end a turn under the usual chat templates, whether or not a key names them. */
static bool ends_turn(const char *text) {
    static const char *const names[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i])) return true;
    return false;
}

static void add_eos(sn_tokenizer_spec *s, int32_t id) {
    for (size_t i = 0; i < s->eos_count; i++)
        if (s->eos[i] == id) return;
    if (id >= 0 && s->eos_count < SN_TOKENIZER_MAX_EOS) s->eos[s->eos_count++] = id;
}

static sn_status read_tokens(const sn_gguf *g, sn_tokenizer_spec *s) {
    sn_gguf_string *tokens = NULL;
    int32_t *types = NULL;
    float *scores = NULL;
    size_t count = 0, type_count = 0, score_count = 0;
    sn_status status;
    SN_TRY_GOTO(status, done, sn_gguf_get_strings(g, "tokenizer.ggml.tokens", &tokens, &count));
    if (sn_gguf_find(g, "tokenizer.ggml.token_type"))
        SN_TRY_GOTO(status, done, sn_gguf_get_i32s(g, "tokenizer.ggml.token_type", &types, &type_count));
    if (s->merge_by_score) SN_TRY_GOTO(status, done, sn_gguf_get_f32s(g, "tokenizer.ggml.scores", &scores, &score_count));
    if (types && type_count != count)
        SN_TRY_GOTO(status, done,
                    sn_fail(SN_ERR_FORMAT, "%s: key tokenizer.ggml.token_type: %zu types for %zu tokens", g->path, type_count, count));
    if (scores && score_count != count)
        SN_TRY_GOTO(status, done,
                    sn_fail(SN_ERR_FORMAT, "%s: key tokenizer.ggml.scores: %zu scores for %zu tokens", g->path, score_count, count));
    if (count > SN_TOKENIZER_MAX_IDS)
        SN_TRY_GOTO(
            status, done,
            sn_fail(SN_ERR_FORMAT, "%s: key tokenizer.ggml.tokens: %zu tokens, want at most %d", g->path, count, SN_TOKENIZER_MAX_IDS));
    for (size_t i = 0; i < count; i++) {
        int32_t type = types ? types[i] : SN_GGML_TOKEN_NORMAL, id = (int32_t)i;
        bool special = type == SN_GGML_TOKEN_CONTROL || type == SN_GGML_TOKEN_UNKNOWN;
        SN_TRY_GOTO(status, done, sn_tokenizer_spec_token(s, tokens[i].text, tokens[i].size, id, scores ? scores[i] : 0));
        if (special || type == SN_GGML_TOKEN_USER_DEFINED)
            SN_TRY_GOTO(status, done,
                        sn_tokenizer_spec_added(s, tokens[i].text, tokens[i].size, (sn_added_token){.id = id, .special = special}));
        if (type == SN_GGML_TOKEN_CONTROL && ends_turn(tokens[i].text)) add_eos(s, id);
    }
done:
    sn_free(tokens);
    sn_free(types);
    sn_free(scores);
    return status;
}

static sn_status read_merges(const sn_gguf *g, sn_tokenizer_spec *s) {
    sn_gguf_string *merges;
    size_t count;
    SN_TRY(sn_gguf_get_strings(g, "tokenizer.ggml.merges", &merges, &count));
    sn_status status = SN_OK;
    for (size_t i = 0; i < count && status == SN_OK; i++) {
        const char *text = merges[i].text, *space = merges[i].size > 1 ? memchr(text + 1, ' ', merges[i].size - 1) : NULL;
        if (!space) status = sn_fail(SN_ERR_FORMAT, "%s: key tokenizer.ggml.merges: item %zu is not two tokens", g->path, i);
        else status = sn_tokenizer_spec_merge(s, text, (size_t)(space - text), space + 1, merges[i].size - (size_t)(space + 1 - text));
    }
    sn_free(merges);
    return status;
}

sn_status sn_tokenizer_spec_from_gguf(const sn_gguf *g, sn_tokenizer_spec *s) {
    static const char *const eos_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    const char *model;
    bool add_bos = false, has_eos = false, prefix_space;
    SN_TRY(sn_gguf_get_string(g, "tokenizer.ggml.model", &model));
    if (!strcmp(model, "gpt2")) {
        s->byte_level = true;
        SN_TRY(read_pre(g, s, &add_bos));
        prefix_space = false;
        SN_TRY(read_optional_bool(g, "tokenizer.ggml.add_space_prefix", &prefix_space));
        if (prefix_space) return sn_fail(SN_ERR_UNSUPPORTED, "%s: key tokenizer.ggml.add_space_prefix: true with byte-level BPE", g->path);
    } else if (!strcmp(model, "llama")) {
        s->byte_fallback = s->merge_by_score = s->space_mark = add_bos = prefix_space = true;
        SN_TRY(read_optional_bool(g, "tokenizer.ggml.add_space_prefix", &prefix_space));
        s->strip_space = prefix_space;
        if (prefix_space) SN_TRY(sn_tokenizer_spec_normalize(s, SN_NORMALIZE_PREPEND, "", " "));
        SN_TRY(sn_tokenizer_spec_normalize(s, SN_NORMALIZE_REPLACE, "\xE2\x96\x81", " "));
    } else {
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: key tokenizer.ggml.model: wanted gpt2 or llama, found \"%.64s\"", g->path, model);
    }
    for (size_t i = 0; i < sizeof eos_keys / sizeof *eos_keys; i++) {
        int32_t id = -1;
        SN_TRY(read_optional_id(g, eos_keys[i], &id));
        add_eos(s, id);
    }
    SN_TRY(read_tokens(g, s));
    if (!s->merge_by_score) SN_TRY(read_merges(g, s));
    SN_TRY(read_optional_id(g, "tokenizer.ggml.bos_token_id", &s->bos));
    SN_TRY(read_optional_id(g, "tokenizer.ggml.padding_token_id", &s->pad));
    SN_TRY(read_optional_id(g, "tokenizer.ggml.unknown_token_id", &s->unk));
    SN_TRY(read_optional_bool(g, "tokenizer.ggml.add_bos_token", &add_bos));
    SN_TRY(read_optional_bool(g, "tokenizer.ggml.add_eos_token", &has_eos));
    if (s->merge_by_score) s->model_unk = s->unk; /* byte-level models drop bytes that they lack, whatever unk is for */
    if (add_bos && s->bos < 0)
        return sn_fail(SN_ERR_FORMAT, "%s: tokenizer.ggml.add_bos_token without tokenizer.ggml.bos_token_id", g->path);
    if (has_eos && !s->eos_count)
        return sn_fail(SN_ERR_FORMAT, "%s: tokenizer.ggml.add_eos_token without tokenizer.ggml.eos_token_id", g->path);
    if (add_bos) s->prefix[s->prefix_count++] = s->bos;
    if (has_eos) s->suffix[s->suffix_count++] = s->eos[0];
    return SN_OK;
}

sn_status sn_tokenizer_from_gguf(const struct sn_gguf *gguf, sn_tokenizer **out) {
    sn_pool pool = {0};
    sn_tokenizer_spec spec;
    *out = NULL;
    sn_tokenizer_spec_start(&spec, gguf->path, &pool);
    sn_status status = sn_tokenizer_spec_from_gguf(gguf, &spec);
    if (status == SN_OK) status = sn_tokenizer_open(&spec, out);
    sn_tokenizer_spec_free(&spec);
    sn_pool_free(&pool);
    return status;
}
