/* Added tokens: looked for in the text before anything else, leftmost first, of those at one place the longest. */
#include <string.h>

#include "io/tokenizer_impl.h"

static uint32_t find_child(const sn_trie *trie, uint32_t node, uint8_t byte) {
    uint32_t child = node ? trie->nodes[node].child : trie->root[byte];
    while (child && trie->nodes[child].byte != byte) child = trie->nodes[child].sibling;
    return child;
}

static sn_status trie_insert(sn_trie *trie, const char *text, size_t n, int32_t added) {
    uint32_t node = 0;
    if (!trie->count) {
        SN_TRY(SN_GROW(trie->nodes, trie->count, trie->capacity));
        trie->nodes[trie->count++] = (sn_trie_node){.added = -1}; /* node 0 means "none" */
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)text[i];
        uint32_t child = find_child(trie, node, byte);
        if (!child) {
            SN_TRY(SN_GROW(trie->nodes, trie->count, trie->capacity));
            child = (uint32_t)trie->count++;
            trie->nodes[child] = (sn_trie_node){.sibling = node ? trie->nodes[node].child : 0, .added = -1, .byte = byte};
            if (node) trie->nodes[node].child = child;
            else trie->root[byte] = child;
        }
        node = child;
    }
    if (node && trie->nodes[node].added < 0) trie->nodes[node].added = added;
    return SN_OK;
}

sn_status sn_tokenizer_build_added(sn_tokenizer *t, const sn_tokenizer_spec *s) {
    size_t bytes = 0;
    for (size_t i = 0; i < s->added_count; i++) bytes += s->added[i].size;
    t->added = sn_alloc_zero(s->added_count, sizeof *t->added);
    t->added_text = sn_alloc(bytes);
    if (!t->added || !t->added_text) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for %zu added tokens", s->name, s->added_count);
    for (size_t i = 0; i < s->added_count; i++) {
        sn_added_token *a = &t->added[i];
        *a = s->added[i];
        a->at = (uint32_t)t->added_text_size;
        if (a->size) memcpy(t->added_text + a->at, s->text.data + s->added[i].at, a->size);
        t->added_text_size += a->size;
        t->added_count++;
        SN_TRY(trie_insert(a->normalized ? &t->normalized : &t->raw, t->added_text + a->at, a->size, (int32_t)i));
    }
    return SN_OK;
}

/* The character that ends at text + at, or -1 if what stands there is not UTF-8. */
static int32_t character_before(const char *text, size_t from, size_t at, size_t *size) {
    for (*size = 1; *size <= 4 && *size <= at - from; ++*size) {
        size_t got;
        const char *start = text + at - *size;
        if (((uint8_t)*start & 0xC0) == 0x80) continue;
        return sn_utf8_valid(start, *size) == *size ? sn_utf8_get(start, *size, &got) : -1;
    }
    return -1;
}

static int32_t character_after(const char *text, size_t at, size_t n, size_t *size) {
    size_t look = n - at < 4 ? n - at : 4;
    return look && sn_utf8_valid(text + at, look) ? sn_utf8_get(text + at, look, size) : -1;
}

/* The longest token at text + at that counts, or -1. */
static int32_t match_at(const sn_tokenizer *t, const sn_trie *trie, const char *text, size_t at, size_t n, unsigned flags) {
    int32_t best = -1;
    uint32_t node = 0;
    for (size_t i = at; i < n && (node = find_child(trie, node, (uint8_t)text[i])); i++) {
        int32_t added = trie->nodes[node].added;
        size_t size;
        if (added < 0 || (t->added[added].special && !(flags & SN_TOKENIZER_PARSE_SPECIAL))) continue;
        if (t->added[added].single_word) {
            int32_t before = character_before(text, 0, at, &size), after = character_after(text, i + 1, n, &size);
            if ((before >= 0 && sn_is_word(before)) || (after >= 0 && sn_is_word(after))) continue;
        }
        best = added;
    }
    return best;
}

int32_t sn_added_next(const sn_tokenizer *t, const sn_trie *trie, const char *text, size_t from, size_t n, unsigned flags, size_t *begin,
                      size_t *end) {
    if (!trie->count) return -1;
    for (size_t at = from, size; at < n; at++) {
        if (!trie->root[(uint8_t)text[at]]) continue;
        int32_t added = match_at(t, trie, text, at, n, flags);
        if (added < 0) continue;
        *begin = at;
        *end = at + t->added[added].size;
        for (int32_t c; t->added[added].lstrip && (c = character_before(text, from, *begin, &size)) >= 0 && sn_is_space(c);) *begin -= size;
        for (int32_t c; t->added[added].rstrip && (c = character_after(text, *end, n, &size)) >= 0 && sn_is_space(c);) *end += size;
        return added;
    }
    return -1;
}
