/* UTF-8, character classes, and the normalizer. */
#define _GNU_SOURCE /* memmem */
#include <string.h>
#include <utf8proc.h>

#include "io/tokenizer_impl.h"

bool sn_is_ascii(const char *text, size_t n) {
    uint64_t all = 0, word;
    for (; n >= 8; text += 8, n -= 8) {
        memcpy(&word, text, 8);
        all |= word;
    }
    for (; n; text++, n--) all |= (uint8_t)*text;
    return !(all & 0x8080808080808080u);
}

/* Bytes of the character that text begins with: 1-4 when complete and valid; 0 when invalid; -1 when it is cut off. */
static int character_size(const uint8_t *text, size_t n) {
    uint8_t first = text[0], low = 0x80, high = 0xBF;
    if (first < 0x80) return 1;
    int size = first >= 0xC2 && first <= 0xDF ? 2 : (first & 0xF0) == 0xE0 ? 3 : first >= 0xF0 && first <= 0xF4 ? 4 : 0;
    if (first == 0xE0) low = 0xA0; /* no overlong forms, no surrogates, nothing over U+10FFFF (Unicode, table 3-7) */
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    for (int i = 1; i < size; i++) {
        if ((size_t)i == n) return -1;
        if (text[i] < low || text[i] > high) return 0;
        low = 0x80;
        high = 0xBF;
    }
    return size;
}

size_t sn_utf8_valid(const char *text, size_t n) {
    size_t i = 0;
    uint64_t word;
    while (i < n) {
        if (n - i >= 8 && (memcpy(&word, text + i, 8), !(word & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        int size = character_size((const uint8_t *)text + i, n - i);
        if (size <= 0) break;
        i += (size_t)size;
    }
    return i;
}

size_t sn_utf8_prefix(const char *text, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = (uint8_t)text[n - back];
        if ((c & 0xC0) == 0x80) continue;
        return character_size((const uint8_t *)text + n - back, back) < 0 ? back : 0;
    }
    return 0;
}

int32_t sn_utf8_get(const char *text, size_t n, size_t *size) {
    utf8proc_int32_t c = -1;
    (void)n;
    const uint8_t *b = (const uint8_t *)text;
    if (b[0] < 0x80) c = b[0], *size = 1;
    else if (b[0] < 0xE0) c = (b[0] & 0x1F) << 6 | (b[1] & 0x3F), *size = 2;
    else if (b[0] < 0xF0) c = (b[0] & 0xF) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F), *size = 3;
    else c = (b[0] & 7) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 | (b[3] & 0x3F), *size = 4;
    return c;
}

bool sn_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool sn_is_word(int32_t c) {
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return c == 0x200C || c == 0x200D; /* Join_Control */
    }
}

/* Normalizes one run (at most 1 GiB) and appends it. */
static sn_status normalize_run(const char *text, size_t n, utf8proc_option_t options, sn_str *out) {
    utf8proc_ssize_t count = utf8proc_decompose((const uint8_t *)text, (utf8proc_ssize_t)n, NULL, 0, options);
    if (count < 0) return sn_fail(SN_ERR_DATA, "normalizing a text: %s", utf8proc_errmsg(count));
    int32_t *points = sn_alloc(((size_t)count + 1) * sizeof *points); /* utf8proc_reencode wants room for a NUL */
    if (!points) return sn_fail(SN_ERR_NO_MEMORY, "no memory to normalize %zu bytes", n);
    count = utf8proc_decompose((const uint8_t *)text, (utf8proc_ssize_t)n, points, count, options);
    if (count >= 0) count = utf8proc_reencode(points, count, options);
    if (count >= 0) sn_str_append(out, (const char *)points, (size_t)count);
    sn_free(points);
    return count < 0 ? sn_fail(SN_ERR_DATA, "normalizing a text: %s", utf8proc_errmsg(count)) : SN_OK;
}

/* ASCII is normal in every form, and no ASCII character composes with what stands before it: a run goes from the last ASCII
 * character before others (an accent may follow it) to the next one. */
static sn_status normalize_unicode(const char *text, size_t n, sn_normalize_kind kind, sn_str *out) {
    utf8proc_option_t options = UTF8PROC_STABLE;
    options |= kind == SN_NORMALIZE_NFC || kind == SN_NORMALIZE_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (kind == SN_NORMALIZE_NFKC || kind == SN_NORMALIZE_NFKD) options |= UTF8PROC_COMPAT;
    for (size_t i = 0; i < n;) {
        size_t ascii = i;
        while (ascii < n && (uint8_t)text[ascii] < 0x80) ascii++;
        size_t run = ascii < n && ascii > i ? ascii - 1 : ascii, end = ascii;
        sn_str_append(out, text + i, run - i);
        while (end < n && (uint8_t)text[end] >= 0x80) end++;
        if (end > run) SN_TRY(normalize_run(text + run, end - run, options, out));
        i = end;
    }
    return SN_OK;
}

static void replace_all(const char *text, size_t n, const char *from, const char *to, sn_str *out) {
    size_t from_size = strlen(from);
    for (const char *end = text + n, *hit; text < end; text = hit + from_size) {
        hit = from_size ? memmem(text, (size_t)(end - text), from, from_size) : NULL;
        sn_str_append(out, text, (size_t)((hit ? hit : end) - text));
        if (!hit) return;
        sn_str_add(out, to);
    }
}

sn_status sn_normalize(sn_encoder *e, const char *text, size_t n, const char **out, size_t *out_size) {
    const sn_tokenizer *t = e->t;
    for (size_t i = 0; i < t->normalize_count; i++) {
        const sn_normalize_spec *step = &t->normalize[i];
        if (!n || (step->kind <= SN_NORMALIZE_NFKD && sn_is_ascii(text, n))) continue;
        sn_str *to = &e->scratch->spare; /* text may lie in `normalized`, which the last step filled */
        sn_str_clear(to);
        if (step->kind <= SN_NORMALIZE_NFKD) SN_TRY(normalize_unicode(text, n, step->kind, to));
        else if (step->kind == SN_NORMALIZE_REPLACE) replace_all(text, n, step->from, step->to, to);
        else {
            sn_str_add(to, step->to);
            sn_str_append(to, text, n);
        }
        if (to->failed) return sn_fail(SN_ERR_NO_MEMORY, "no memory to normalize %zu bytes", n);
        sn_str swap = e->scratch->normalized;
        e->scratch->normalized = *to;
        *to = swap;
        text = e->scratch->normalized.data ? e->scratch->normalized.data : "";
        n = e->scratch->normalized.size;
    }
    *out = text;
    *out_size = n;
    return SN_OK;
}
