/* The vocabulary: texts by id, and an open-addressing hash table from text to id. */
#include <string.h>

#include "io/tokenizer_impl.h"

/* GPT-2's byte alphabet writes printable Latin-1 bytes as themselves and the other 68 as U+0100 and up, in byte order.
 * Returns the byte that a character stands for, or -1. */
static int alphabet_byte(int32_t c) {
    static const uint8_t moved[68] = {
        0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,  16,  17,  18,  19,  20,  21,  22,
        23,  24,  25,  26,  27,  28,  29,  30,  31,  32,  127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139,
        140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173,
    };
    if ((c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF)) return c;
    return c >= 0x100 && c < 0x100 + 68 ? moved[c - 0x100] : -1;
}

/* Writes the bytes that a token's text stands for to `to` (never more than n); a text with characters outside the alphabet
 * stands for itself. Returns their number. */
static size_t alphabet_decode(const char *text, size_t n, char *to) {
    size_t out = 0;
    if (sn_utf8_valid(text, n) != n) return memcpy(to, text, n), n;
    for (size_t i = 0, size; i < n; i += size) {
        int byte = alphabet_byte(sn_utf8_get(text + i, n - i, &size));
        if (byte < 0) return memcpy(to, text, n), n;
        to[out++] = (char)byte;
    }
    return out;
}

/* The value of "<0x0A>", or -1. */
static int fallback_byte(const char *text, size_t n) {
    if (n != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static size_t space_mark_decode(const char *text, size_t n, char *to) {
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        if (n - i >= 3 && !memcmp(text + i, "\xE2\x96\x81", 3)) {
            to[out++] = ' ';
            i += 3;
        } else to[out++] = text[i++];
    }
    return out;
}

size_t sn_tokenizer_decode_text(const sn_tokenizer_spec *s, const char *text, size_t n, char *to) {
    if (s->byte_level) return alphabet_decode(text, n, to);
    if (s->space_mark) return space_mark_decode(text, n, to);
    if (n) memcpy(to, text, n);
    return n;
}

static uint64_t text_hash(const char *text, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15u, word;
    for (; n >= 8; text += 8, n -= 8) {
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    word = 0;
    for (size_t i = 0; i < n; i++) word |= (uint64_t)(uint8_t)text[i] << (8 * i);
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    return h * 0x9E3779B97F4A7C15u;
}

int32_t sn_tokenizer_find(const sn_tokenizer *t, const char *text, size_t n) {
    if (!n || n > t->longest) return -1;
    uint32_t slot = (uint32_t)((text_hash(text, n) >> 32) * t->slot_count >> 32);
    for (;; slot = slot + 1 == t->slot_count ? 0 : slot + 1) {
        int32_t id = t->slots[slot];
        if (id < 0) return -1;
        if (t->offset[id + 1] - t->offset[id] == n && !memcmp(t->text + t->offset[id], text, n)) return id;
    }
}

/* Puts an id into the hash table; false when its text is there already. */
static bool insert(sn_tokenizer *t, int32_t id) {
    const char *text = t->text + t->offset[id];
    size_t n = t->offset[id + 1] - t->offset[id];
    uint32_t slot = (uint32_t)((text_hash(text, n) >> 32) * t->slot_count >> 32);
    for (; t->slots[slot] >= 0; slot = slot + 1 == t->slot_count ? 0 : slot + 1) {
        int32_t other = t->slots[slot];
        if (t->offset[other + 1] - t->offset[other] == n && !memcmp(t->text + t->offset[other], text, n)) return false;
    }
    t->slots[slot] = id;
    return true;
}

/* Fills by_id with the spec's tokens, and added_by_id with its added tokens, by id; both hold NULL at the start. */
static sn_status sort_by_id(const sn_tokenizer_spec *s, const sn_token_spec **by_id, const sn_added_token **added_by_id) {
    for (size_t i = 0; i < s->token_count; i++) {
        const sn_token_spec *token = &s->tokens[i], *other = by_id[token->id];
        if (other)
            return sn_fail(SN_ERR_FORMAT, "%s: vocab: id %d stands for \"%.*s\" and for \"%.*s\"", s->name, token->id, (int)other->size,
                           s->text.data + other->at, (int)token->size, s->text.data + token->at);
        by_id[token->id] = token;
    }
    for (size_t i = 0; i < s->added_count; i++) {
        const sn_added_token *a = &s->added[i];
        const sn_token_spec *token = by_id[a->id];
        if (added_by_id[a->id]) return sn_fail(SN_ERR_FORMAT, "%s: added_tokens[%zu].id: %d is used twice", s->name, i, a->id);
        if (token && (token->size != a->size || memcmp(s->text.data + token->at, s->text.data + a->at, a->size)))
            return sn_fail(SN_ERR_FORMAT, "%s: added_tokens[%zu].id: %d is \"%.*s\" in the vocabulary, here \"%.*s\"", s->name, i, a->id,
                           (int)token->size, s->text.data + token->at, (int)a->size, s->text.data + a->at);
        added_by_id[a->id] = a;
    }
    return SN_OK;
}

/* Lays the texts out in id order and sets flags and byte ids. */
static void lay_out(sn_tokenizer *t, const sn_tokenizer_spec *s, const sn_token_spec **by_id, const sn_added_token **added_by_id) {
    uint32_t at = 0;
    for (int i = 0; i < 256; i++) t->byte_id[i] = -1;
    for (int32_t id = 0; id < t->size; id++) {
        const sn_token_spec *token = by_id[id];
        const sn_added_token *added = added_by_id[id];
        uint32_t n = 0;
        t->offset[id] = at;
        if (added) {
            t->flags[id] = (uint8_t)(SN_TOKEN_EXISTS | SN_TOKEN_ADDED | (added->special ? SN_TOKEN_SPECIAL : 0));
            n = added->size;
            if (n) memcpy(t->text + at, s->text.data + added->at, n);
        } else if (token) {
            const char *text = s->text.data + token->at;
            int byte = s->byte_fallback ? fallback_byte(text, token->size) : -1;
            t->flags[id] = SN_TOKEN_EXISTS;
            if (byte >= 0) {
                t->flags[id] |= SN_TOKEN_BYTE;
                t->byte_id[byte] = id;
                t->text[at] = (char)byte;
                n = 1;
            } else n = (uint32_t)sn_tokenizer_decode_text(s, text, token->size, t->text + at);
        }
        at += n;
    }
    t->offset[t->size] = at;
}

/* Ordinary tokens first: the verbatim text of an added token may equal what an ordinary one decodes to. */
static void fill_hash(sn_tokenizer *t, const sn_tokenizer_spec *s, const sn_token_spec **by_id) {
    for (uint32_t i = 0; i < t->slot_count; i++) t->slots[i] = -1;
    for (int added = false; added <= true; added++) {
        for (int32_t id = 0; id < t->size; id++) {
            size_t n = t->offset[id + 1] - t->offset[id];
            if (!by_id[id] || !n || (t->flags[id] & SN_TOKEN_BYTE) || ((t->flags[id] & SN_TOKEN_ADDED) != 0) != added || !insert(t, id))
                continue;
            if (n > t->longest) t->longest = n;
            if (s->byte_level && n == 1) t->byte_id[(uint8_t)t->text[t->offset[id]]] = id;
        }
    }
}

sn_status sn_tokenizer_build_vocab(sn_tokenizer *t, const sn_tokenizer_spec *s) {
    int32_t size = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < s->token_count; i++) {
        if (s->tokens[i].id >= size) size = s->tokens[i].id + 1;
        bytes += s->tokens[i].size;
    }
    for (size_t i = 0; i < s->added_count; i++) {
        if (s->added[i].id >= size) size = s->added[i].id + 1;
        bytes += s->added[i].size;
    }
    if (!size) return sn_fail(SN_ERR_FORMAT, "%s: the vocabulary is empty", s->name);
    t->size = size;
    t->slot_count = (uint32_t)(s->token_count + s->token_count / 2 + 8);
    t->text = sn_alloc(bytes);
    t->offset = sn_alloc_zero((size_t)size + 1, sizeof *t->offset);
    t->flags = sn_alloc_zero((size_t)size, 1);
    t->whole = sn_alloc_zero((size_t)size, sizeof *t->whole);
    t->slots = sn_alloc((size_t)t->slot_count * sizeof *t->slots);
    const sn_token_spec **by_id = sn_alloc_zero((size_t)size, sizeof *by_id);
    const sn_added_token **added_by_id = sn_alloc_zero((size_t)size, sizeof *added_by_id);
    sn_status status = SN_OK;
    if (!t->text || !t->offset || !t->flags || !t->whole || !t->slots || !by_id || !added_by_id)
        status = sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for %d tokens", s->name, size);
    if (status == SN_OK) status = sort_by_id(s, by_id, added_by_id);
    if (status == SN_OK) {
        lay_out(t, s, by_id, added_by_id);
        fill_hash(t, s, by_id);
    }
    sn_free(by_id);
    sn_free(added_by_id);
    return status;
}
