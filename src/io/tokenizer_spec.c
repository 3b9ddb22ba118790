#include "io/tokenizer_spec.h"

#include <string.h>

/* The pattern of OpenAI's GPT-2 encoder: contractions, words, numbers, other runs, spaces. */
const char sn_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void sn_tokenizer_spec_start(sn_tokenizer_spec *s, const char *name, sn_pool *pool) {
    *s = (sn_tokenizer_spec){.name = name, .model_unk = -1, .bos = -1, .pad = -1, .unk = -1, .pool = pool};
}

void sn_tokenizer_spec_free(sn_tokenizer_spec *s) {
    sn_str_free(&s->text);
    sn_free(s->tokens);
    sn_free(s->merges);
    sn_free(s->added);
    s->tokens = NULL;
    s->merges = NULL;
    s->added = NULL;
}

static sn_status keep(sn_tokenizer_spec *s, const char *text, size_t n, uint32_t *at) {
    if (n > UINT32_MAX / 2 || s->text.size > UINT32_MAX / 2 - n)
        return sn_fail(SN_ERR_FORMAT, "%s: the vocabulary's text is over 2 GiB", s->name);
    *at = (uint32_t)s->text.size;
    sn_str_append(&s->text, text, n);
    return s->text.failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for the vocabulary", s->name) : SN_OK;
}

sn_status sn_tokenizer_spec_token(sn_tokenizer_spec *s, const char *text, size_t n, int32_t id, float score) {
    if (id < 0 || id >= SN_TOKENIZER_MAX_IDS)
        return sn_fail(SN_ERR_FORMAT, "%s: token \"%.*s\" has id %d, want 0 to %d", s->name, n < 64 ? (int)n : 64, text, id,
                       SN_TOKENIZER_MAX_IDS - 1);
    SN_TRY(SN_GROW(s->tokens, s->token_count, s->token_capacity));
    sn_token_spec *t = &s->tokens[s->token_count];
    SN_TRY(keep(s, text, n, &t->at));
    t->size = (uint32_t)n;
    t->id = id;
    t->score = score;
    s->token_count++;
    return SN_OK;
}

sn_status sn_tokenizer_spec_merge(sn_tokenizer_spec *s, const char *left, size_t left_size, const char *right, size_t right_size) {
    uint32_t at_right;
    SN_TRY(SN_GROW(s->merges, s->merge_count, s->merge_capacity));
    sn_merge_spec *m = &s->merges[s->merge_count];
    SN_TRY(keep(s, left, left_size, &m->at));
    SN_TRY(keep(s, right, right_size, &at_right));
    m->left = (uint32_t)left_size;
    m->right = (uint32_t)right_size;
    s->merge_count++;
    return SN_OK;
}

sn_status sn_tokenizer_spec_added(sn_tokenizer_spec *s, const char *text, size_t n, sn_added_token flags) {
    if (flags.id < 0 || flags.id >= SN_TOKENIZER_MAX_IDS)
        return sn_fail(SN_ERR_FORMAT, "%s: added token \"%.*s\" has id %d, want 0 to %d", s->name, n < 64 ? (int)n : 64, text, flags.id,
                       SN_TOKENIZER_MAX_IDS - 1);
    if (n > SN_TOKENIZER_MAX_ADDED_TEXT)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: added token %d is %zu bytes long, want at most %d", s->name, flags.id, n,
                       SN_TOKENIZER_MAX_ADDED_TEXT);
    SN_TRY(SN_GROW(s->added, s->added_count, s->added_capacity));
    SN_TRY(keep(s, text, n, &flags.at));
    flags.size = (uint32_t)n;
    s->added[s->added_count++] = flags;
    return SN_OK;
}

sn_status sn_tokenizer_spec_split(sn_tokenizer_spec *s, sn_split_kind kind, sn_split_behavior behavior, bool invert, const char *pattern,
                                  size_t n) {
    if (s->split_count == SN_TOKENIZER_MAX_STEPS)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: pre_tokenizer has over %d steps", s->name, SN_TOKENIZER_MAX_STEPS);
    char *copy = sn_pool_alloc(s->pool, n + 1);
    if (!copy) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for pre_tokenizer", s->name);
    if (n) memcpy(copy, pattern, n);
    s->split[s->split_count++] = (sn_split_spec){kind, behavior, invert, copy, n};
    return SN_OK;
}

sn_status sn_tokenizer_spec_normalize(sn_tokenizer_spec *s, sn_normalize_kind kind, const char *from, const char *to) {
    if (s->normalize_count == SN_TOKENIZER_MAX_STEPS)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: normalizer has over %d steps", s->name, SN_TOKENIZER_MAX_STEPS);
    sn_normalize_spec step = {kind, sn_pool_strdup(s->pool, from), sn_pool_strdup(s->pool, to)};
    if (!step.from || !step.to) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for normalizer", s->name);
    s->normalize[s->normalize_count++] = step;
    return SN_OK;
}
