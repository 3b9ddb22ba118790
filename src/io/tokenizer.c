#include "io/tokenizer.h"

#include <string.h>

#include "io/tokenizer_impl.h"

#define KEEP_SCRATCH (1 << 18) /* bytes of working memory that stay between calls */

sn_status sn_ids_push(sn_ids *ids, int32_t id) {
    SN_TRY(sn_ids_reserve(ids, 1));
    ids->data[ids->size++] = id;
    return SN_OK;
}

void sn_ids_free(sn_ids *ids) {
    sn_free(ids->data);
    *ids = (sn_ids){0};
}

static sn_status check_id(const sn_tokenizer_spec *s, int32_t size, const char *what, int32_t id) {
    if (id >= -1 && id < size) return SN_OK;
    return sn_fail(SN_ERR_FORMAT, "%s: %s: id %d is outside the vocabulary of %d", s->name, what, id, size);
}

static sn_status copy_settings(sn_tokenizer *t, const sn_tokenizer_spec *s) {
    t->byte_level = s->byte_level;
    t->byte_fallback = s->byte_fallback;
    t->merge_by_score = s->merge_by_score;
    t->ignore_merges = s->ignore_merges;
    t->fuse_unk = s->fuse_unk;
    t->strip_space = s->strip_space;
    t->model_unk = s->model_unk;
    t->bos = s->bos;
    t->pad = s->pad;
    t->unk = s->unk;
    memcpy(t->eos, s->eos, sizeof t->eos);
    memcpy(t->prefix, s->prefix, sizeof t->prefix);
    memcpy(t->suffix, s->suffix, sizeof t->suffix);
    t->eos_count = s->eos_count;
    t->prefix_count = s->prefix_count;
    t->suffix_count = s->suffix_count;
    for (size_t i = 0; i < s->prefix_count; i++) SN_TRY(check_id(s, t->size, "post_processor", s->prefix[i]));
    for (size_t i = 0; i < s->suffix_count; i++) SN_TRY(check_id(s, t->size, "post_processor", s->suffix[i]));
    SN_TRY(check_id(s, t->size, "unk_token", s->model_unk));
    SN_TRY(check_id(s, t->size, "bos_token", s->bos));
    SN_TRY(check_id(s, t->size, "pad_token", s->pad));
    SN_TRY(check_id(s, t->size, "unk_token", s->unk));
    for (size_t i = 0; i < s->eos_count; i++) SN_TRY(check_id(s, t->size, "eos_token", s->eos[i]));
    for (size_t i = 0; i < s->normalize_count; i++) {
        sn_normalize_spec step = s->normalize[i];
        step.from = sn_pool_strdup(&t->pool, step.from);
        step.to = sn_pool_strdup(&t->pool, step.to);
        if (!step.from || !step.to) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for normalizer", s->name);
        t->normalize[t->normalize_count++] = step;
        t->pool_bytes += strlen(step.from) + strlen(step.to) + 32;
    }
    return SN_OK;
}

sn_status sn_tokenizer_open(const sn_tokenizer_spec *s, sn_tokenizer **out) {
    *out = NULL;
    sn_tokenizer *t = sn_alloc_zero(1, sizeof *t);
    if (!t) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for a tokenizer", s->name);
    sn_status status;
    SN_TRY_GOTO(status, failed, sn_tokenizer_build_vocab(t, s));
    SN_TRY_GOTO(status, failed, copy_settings(t, s));
    SN_TRY_GOTO(status, failed, sn_tokenizer_build_merges(t, s));
    SN_TRY_GOTO(status, failed, sn_tokenizer_build_added(t, s));
    SN_TRY_GOTO(status, failed, sn_tokenizer_build_split(t, s));
    *out = t;
    return SN_OK;
failed:
    sn_tokenizer_close(t);
    return status;
}

void sn_tokenizer_close(sn_tokenizer *t) {
    if (!t) return;
    sn_scratch_close(atomic_load(&t->spare_scratch));
    sn_tokenizer_free_split(t);
    sn_free(t->text);
    sn_free(t->offset);
    sn_free(t->flags);
    sn_free(t->slots);
    sn_free(t->pairs);
    sn_free(t->score_rank);
    sn_free((void *)t->whole);
    sn_free(t->added);
    sn_free(t->added_text);
    sn_free(t->raw.nodes);
    sn_free(t->normalized.nodes);
    sn_pool_free(&t->pool);
    sn_free(t);
}

/* A stretch without added tokens that the normalizer has seen. */
static sn_status encode_normalized(sn_encoder *e, const char *text, size_t n) {
    size_t at = 0, begin, end;
    for (int32_t added; (added = sn_added_next(e->t, &e->t->normalized, text, at, n, e->flags, &begin, &end)) >= 0; at = end) {
        SN_TRY(sn_encode_words(e, text + at, begin - at));
        SN_TRY(sn_ids_push(e->out, e->t->added[added].id));
        e->last_unk = e->at_start = false;
    }
    return sn_encode_words(e, text + at, n - at);
}

/* A stretch of the text as it came: valid UTF-8 goes through normalizer and pre-tokenizer, other bytes are words. */
static sn_status encode_stretch(sn_encoder *e, const char *text, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t valid = sn_utf8_valid(text + at, n - at), size;
        if (valid) {
            const char *normal;
            SN_TRY(sn_normalize(e, text + at, valid, &normal, &size));
            SN_TRY(encode_normalized(e, normal, size));
            at += valid;
        }
        size_t begin = at;
        while (at < n && !sn_utf8_valid(text + at, n - at < 4 ? n - at : 4)) at++;
        if (at > begin) SN_TRY(sn_encode_word(e, text + begin, at - begin));
    }
    return SN_OK;
}

static sn_status encode_text(sn_encoder *e, const char *text, size_t n) {
    size_t at = 0, begin, end;
    for (int32_t added; (added = sn_added_next(e->t, &e->t->raw, text, at, n, e->flags, &begin, &end)) >= 0; at = end) {
        SN_TRY(encode_stretch(e, text + at, begin - at));
        SN_TRY(sn_ids_push(e->out, e->t->added[added].id));
        e->last_unk = e->at_start = false;
    }
    return encode_stretch(e, text + at, n - at);
}

/* The tokenizer keeps one set of working memory; a thread that finds it taken makes its own. */
static void give_back(const sn_tokenizer *t, sn_tokenizer_scratch *s) {
    if (s->merge_bytes > KEEP_SCRATCH) {
        sn_free(s->merge);
        s->merge = NULL;
        s->merge_bytes = 0;
    }
    sn_str *texts[] = {&s->normalized, &s->spare, &s->prefixed};
    for (int i = 0; i < 3; i++)
        if (texts[i]->failed || texts[i]->capacity > KEEP_SCRATCH) sn_str_free(texts[i]);
    sn_scratch_close(atomic_exchange(&((sn_tokenizer *)t)->spare_scratch, s));
}

sn_status sn_tokenizer_encode(const sn_tokenizer *t, const char *text, size_t n, unsigned flags, sn_ids *out) {
    if (n > 1u << 30) return sn_fail(SN_ERR_DATA, "a text of %zu bytes is over 1 GiB", n);
    if (!n) text = "";
    sn_tokenizer_scratch *scratch = atomic_exchange(&((sn_tokenizer *)t)->spare_scratch, NULL);
    if (!scratch) SN_TRY(sn_scratch_open(t, &scratch));
    size_t before = out->size, prefix = flags & SN_TOKENIZER_ADD_SPECIAL ? t->prefix_count : 0;
    sn_encoder e = {.t = t, .scratch = scratch, .out = out, .flags = flags, .at_start = true};
    sn_status status = SN_OK;
    for (size_t i = 0; i < prefix; i++) SN_TRY_GOTO(status, done, sn_ids_push(out, t->prefix[i]));
    SN_TRY_GOTO(status, done, encode_text(&e, text, n));
    /* A chat template may have written the BOS already: never two. */
    if (prefix && t->prefix[prefix - 1] == t->bos && out->size > before + prefix && out->data[before + prefix] == t->bos) {
        memmove(out->data + before + prefix, out->data + before + prefix + 1, (out->size - before - prefix - 1) * sizeof *out->data);
        out->size--;
    }
    for (size_t i = 0; i < t->suffix_count && (flags & SN_TOKENIZER_ADD_SPECIAL); i++)
        SN_TRY_GOTO(status, done, sn_ids_push(out, t->suffix[i]));
done:
    if (status != SN_OK) out->size = before;
    give_back(t, scratch);
    return status;
}

static sn_status decode_one(const sn_tokenizer *t, int32_t id, unsigned flags, bool *started, sn_str *out) {
    size_t n;
    const char *text = sn_tokenizer_token(t, id, &n);
    if (!text) return sn_fail(SN_ERR_DATA, "token id %d is outside the vocabulary of %d", id, t->size);
    if ((flags & SN_TOKENIZER_SKIP_SPECIAL) && sn_tokenizer_is_special(t, id)) return SN_OK;
    bool strip = t->strip_space && !*started && n && *text == ' ' && !(t->flags[id] & SN_TOKEN_ADDED);
    *started = true;
    sn_str_append(out, text + strip, n - strip);
    return out->failed ? sn_fail(SN_ERR_NO_MEMORY, "no memory to decode") : SN_OK;
}

sn_status sn_tokenizer_decode(const sn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, sn_str *out) {
    bool started = false;
    for (size_t i = 0; i < n; i++) SN_TRY(decode_one(t, ids[i], flags, &started, out));
    return SN_OK;
}

sn_status sn_detokenizer_add(sn_detokenizer *d, int32_t id, sn_str *out) {
    size_t before = out->size;
    sn_str_append(out, d->held, d->held_size);
    sn_status status = out->failed ? sn_fail(SN_ERR_NO_MEMORY, "no memory to decode") : decode_one(d->t, id, d->flags, &d->started, out);
    if (status != SN_OK) {
        if (!out->failed) out->size = before;
        return status;
    }
    if (out->size == before) return SN_OK;
    d->held_size = (unsigned)sn_utf8_prefix(out->data + before, out->size - before);
    out->size -= d->held_size;
    memcpy(d->held, out->data + out->size, d->held_size);
    out->data[out->size] = 0;
    return SN_OK;
}

sn_status sn_detokenizer_finish(sn_detokenizer *d, sn_str *out) {
    sn_str_append(out, d->held, d->held_size);
    if (out->failed) return sn_fail(SN_ERR_NO_MEMORY, "no memory to decode");
    d->held_size = 0;
    return SN_OK;
}

int32_t sn_tokenizer_size(const sn_tokenizer *t) { return t->size; }

const char *sn_tokenizer_token(const sn_tokenizer *t, int32_t id, size_t *n) {
    if (id < 0 || id >= t->size || !(t->flags[id] & SN_TOKEN_EXISTS)) return NULL;
    *n = t->offset[id + 1] - t->offset[id];
    return t->text + t->offset[id];
}

int32_t sn_tokenizer_id(const sn_tokenizer *t, const char *text, size_t n) {
    for (size_t i = 0; i < t->added_count; i++)
        if (t->added[i].size == n && !memcmp(t->added_text + t->added[i].at, text, n)) return t->added[i].id;
    return sn_tokenizer_find(t, text, n);
}

bool sn_tokenizer_is_special(const sn_tokenizer *t, int32_t id) { return id >= 0 && id < t->size && (t->flags[id] & SN_TOKEN_SPECIAL); }

bool sn_tokenizer_is_eos(const sn_tokenizer *t, int32_t id) {
    for (size_t i = 0; i < t->eos_count; i++)
        if (t->eos[i] == id) return true;
    return false;
}

int32_t sn_tokenizer_bos(const sn_tokenizer *t) { return t->bos; }
int32_t sn_tokenizer_eos(const sn_tokenizer *t) { return t->eos_count ? t->eos[0] : -1; }
int32_t sn_tokenizer_pad(const sn_tokenizer *t) { return t->pad; }
int32_t sn_tokenizer_unk(const sn_tokenizer *t) { return t->unk; }

sn_status sn_tokenizer_add_eos(sn_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->size) return sn_fail(SN_ERR_FORMAT, "eos_token_id: %d is outside the vocabulary of %d", id, t->size);
    if (sn_tokenizer_is_eos(t, id)) return SN_OK;
    if (t->eos_count == SN_TOKENIZER_MAX_EOS) return sn_fail(SN_ERR_UNSUPPORTED, "eos_token_id: over %d ids", SN_TOKENIZER_MAX_EOS);
    t->eos[t->eos_count++] = id;
    return SN_OK;
}

size_t sn_tokenizer_bytes(const sn_tokenizer *t) {
    size_t n = (size_t)t->size;
    size_t bytes = sizeof *t + t->offset[n] + (n + 1) * sizeof *t->offset + 2 * n + t->slot_count * sizeof *t->slots +
                   t->pair_slots * sizeof *t->pairs + (t->score_rank ? n * sizeof *t->score_rank : 0) + t->added_count * sizeof *t->added +
                   t->added_text_size + (t->raw.capacity + t->normalized.capacity) * sizeof *t->raw.nodes + t->pool_bytes;
    for (size_t i = 0; i < t->split_count; i++) {
        size_t code = 0, jit = 0;
        if (!t->split[i].code) continue;
        pcre2_pattern_info(t->split[i].code, PCRE2_INFO_SIZE, &code);
        pcre2_pattern_info(t->split[i].code, PCRE2_INFO_JITSIZE, &jit);
        bytes += code + jit;
    }
    return bytes + sizeof(sn_tokenizer_scratch) + KEEP_SCRATCH;
}
