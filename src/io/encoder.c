#include "io/encoder.h"

#include <string.h>

#include "base/hash.h"

static bool special(const sn_encoder *e, int32_t id) { return sn_tokenizer_is_special(e->state, id); }

/* Some tokenizers put a space before the text they are given. Inside a document a line end is put there instead, and its ids
 * are taken off again. */
static sn_status encode_inside(const sn_encoder *e, const char *text, size_t n, unsigned flags, sn_ids *out) {
    sn_ids line = {0}, ids = {0};
    sn_str with_line = {0};
    sn_str_char(&with_line, '\n');
    sn_str_append(&with_line, text, n);
    sn_status s = with_line.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a text of %zu bytes", n) : SN_OK;
    if (s == SN_OK) s = sn_tokenizer_encode(e->state, "\n", 1, 0, &line);
    if (s == SN_OK) s = sn_tokenizer_encode(e->state, with_line.data, with_line.size, flags, &ids);
    if (s == SN_OK) {
        bool begins = ids.size >= line.size && !memcmp(ids.data, line.data, line.size * sizeof *ids.data);
        for (size_t i = line.size; begins && s == SN_OK && i < ids.size; i++) s = sn_ids_push(out, ids.data[i]);
        if (!begins) s = sn_tokenizer_encode(e->state, text, n, flags, out);
    }
    sn_ids_free(&line);
    sn_ids_free(&ids);
    sn_str_free(&with_line);
    return s;
}

static sn_status encode(const sn_encoder *e, const char *text, size_t n, unsigned flags, sn_ids *out) {
    unsigned tokenizer_flags = flags & SN_ENCODE_SPECIAL ? SN_TOKENIZER_PARSE_SPECIAL : 0;
    if (flags & SN_ENCODE_INSIDE && e->prefix_space && n) return encode_inside(e, text, n, tokenizer_flags, out);
    return sn_tokenizer_encode(e->state, text, n, tokenizer_flags, out);
}

static sn_status probe(const sn_tokenizer *t, sn_encoder *out, sn_ids ids[3]) {
    static const char text[] = "The quick\tbrown fox 12345 jumps.\n\n  \xc3\xa4\xe4\xb8\x96\xf0\x9f\x8e\x89 don't(x) = y;";
    char hex[65];
    sn_sha256 h;
    SN_TRY(sn_tokenizer_encode(t, "\n", 1, 0, &ids[0]));
    SN_TRY(sn_tokenizer_encode(t, "a", 1, 0, &ids[0]));
    SN_TRY(sn_tokenizer_encode(t, "\na", 2, 0, &ids[1]));
    out->prefix_space = ids[0].size != ids[1].size || memcmp(ids[0].data, ids[1].data, ids[0].size * sizeof *ids[0].data) != 0;
    SN_TRY(sn_tokenizer_encode(t, text, sizeof text - 1, SN_TOKENIZER_ADD_SPECIAL, &ids[2]));
    out->bos = sn_tokenizer_bos(t);
    if (!ids[2].size || ids[2].data[0] != out->bos) out->bos = -1;
    sn_sha256_start(&h);
    sn_sha256_add(&h, ids[2].data, ids[2].size * sizeof *ids[2].data);
    for (int32_t id = 0, size = sn_tokenizer_size(t); id < size; id++) {
        size_t n = 0;
        const char *token = sn_tokenizer_token(t, id, &n);
        sn_sha256_add(&h, &n, sizeof n);
        if (token) sn_sha256_add(&h, token, n);
    }
    sn_sha256_end(&h, hex);
    memcpy(&out->fingerprint, hex, sizeof out->fingerprint);
    return SN_OK;
}

sn_status sn_encoder_of_tokenizer(const sn_tokenizer *t, sn_encoder *out) {
    *out = (sn_encoder){.state = t, .encode = encode, .is_special = special, .eos = sn_tokenizer_eos(t)};
    if (out->eos < 0) return sn_fail(SN_ERR_UNSUPPORTED, "the tokenizer has no end-of-text token, which training data needs");
    sn_ids ids[3] = {0};
    sn_status s = probe(t, out, ids);
    for (int i = 0; i < 3; i++) sn_ids_free(&ids[i]);
    return s;
}

/* One part of a conversation, and how many control tokens it has. */
static sn_status encode_part(const sn_encoder *e, const sn_chat_text *t, size_t begin, size_t end, unsigned flags, sn_ids *out,
                             size_t *specials) {
    size_t from = out->size;
    if (begin >= end) return SN_OK;
    SN_TRY(e->encode(e, t->text.data + begin, end - begin, flags | (begin ? SN_ENCODE_INSIDE : 0), out));
    for (size_t i = from; i < out->size; i++) *specials += e->is_special(e, out->data[i]);
    return SN_OK;
}

/* Cuts at the user's parts that hold control tokens (or at all parts) and encodes those as plain text. */
static sn_status encode_split(const sn_encoder *e, const sn_chat_text *t, size_t begin, size_t end, bool all, sn_ids *scratch, sn_ids *out,
                              size_t *specials) {
    size_t from = begin;
    for (size_t i = 0; i < t->data_count; i++) {
        size_t a = t->data[i].begin > begin ? t->data[i].begin : begin, b = t->data[i].end < end ? t->data[i].end : end, inside = 0;
        if (a >= b) continue;
        scratch->size = 0;
        if (!all) SN_TRY(encode_part(e, t, a, b, SN_ENCODE_SPECIAL, scratch, &inside));
        if (!all && !inside) continue;
        SN_TRY(encode_part(e, t, from, a, SN_ENCODE_SPECIAL, out, specials));
        SN_TRY(encode_part(e, t, a, b, 0, out, specials));
        from = b;
    }
    return encode_part(e, t, from, end, SN_ENCODE_SPECIAL, out, specials);
}

static sn_status count_template(const sn_encoder *e, const sn_chat_text *t, size_t begin, size_t end, sn_ids *scratch, size_t *specials) {
    size_t from = begin;
    for (size_t i = 0; i <= t->data_count; i++) {
        size_t to = i < t->data_count && t->data[i].begin < end ? t->data[i].begin : end;
        scratch->size = 0;
        if (to > from) SN_TRY(encode_part(e, t, from, to, SN_ENCODE_SPECIAL, scratch, specials));
        if (i < t->data_count && t->data[i].end > from) from = t->data[i].end;
    }
    return SN_OK;
}

sn_status sn_encode_chat(const sn_encoder *e, const sn_chat_text *t, size_t begin, size_t end, sn_ids *out) {
    sn_ids scratch = {0};
    size_t from = out->size, wanted = 0, found = 0;
    sn_status s = count_template(e, t, begin, end, &scratch, &wanted);
    if (s == SN_OK) s = encode_part(e, t, begin, end, SN_ENCODE_SPECIAL, out, &found);
    for (int all = 0; all < 2 && s == SN_OK && found != wanted; all++) { /* a control token that the template did not write */
        out->size = from;
        found = 0;
        s = encode_split(e, t, begin, end, all, &scratch, out, &found);
    }
    sn_ids_free(&scratch);
    return s;
}
