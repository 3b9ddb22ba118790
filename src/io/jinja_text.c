/* Text: building it with its mask, printing values as Python does, characters, strip, find, replace, case. */
#define _GNU_SOURCE /* memmem */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "io/jinja.h"

void jn_add_bytes(jn_buffer *b, const char *text, size_t n, bool masked) {
    if (b->too_large || n > JN_MAX_BYTES || b->text.size > JN_MAX_BYTES - n) {
        b->too_large = true;
        return;
    }
    static const char zeros[64], ones[64] = {[0 ... 63] = 1};
    if (masked || b->mask.size) {
        while (b->mask.size < b->text.size && !b->mask.failed) {
            size_t m = b->text.size - b->mask.size;
            sn_str_append(&b->mask, zeros, m < 64 ? m : 64);
        }
        for (size_t left = n; left;) {
            size_t m = left < 64 ? left : 64;
            sn_str_append(&b->mask, masked ? ones : zeros, m);
            left -= m;
        }
    }
    sn_str_append(&b->text, text, n);
}

void jn_add(jn_buffer *b, const jn_value *s) {
    if (!s->as.mask) {
        jn_add_bytes(b, s->text, s->size, false);
        return;
    }
    for (size_t at = 0, end; at < s->size; at = end) { /* runs of equal provenance */
        for (end = at + 1; end < s->size && s->as.mask[end] == s->as.mask[at];) end++;
        jn_add_bytes(b, s->text + at, end - at, s->as.mask[at]);
    }
}

void jn_add_text(jn_buffer *b, const char *text) { jn_add_bytes(b, text, strlen(text), false); }

void jn_buffer_free(jn_buffer *b) {
    sn_str_free(&b->text);
    sn_str_free(&b->mask);
    *b = (jn_buffer){0};
}

sn_status jn_buffer_value(jn_run *x, jn_buffer *b, jn_value *out) {
    sn_status s = SN_OK;
    size_t n = b->text.size;
    if (b->too_large) s = jn_fail(x, "the template makes a text of more than %d bytes", JN_MAX_BYTES);
    else if (b->text.failed || b->mask.failed) s = sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate memory");
    char *text = s == SN_OK ? jn_alloc(x, n + 1) : NULL;
    uint8_t *mask = NULL;
    if (text && b->mask.size && !(mask = jn_alloc(x, n))) text = NULL;
    if (text) {
        if (n) memcpy(text, b->text.data, n);
        if (mask) memcpy(mask, b->mask.data, n);
        *out = (jn_value){.kind = JN_STRING, .text = text, .size = n, .as.mask = mask};
    } else if (s == SN_OK) {
        s = x->why; /* jn_alloc has said why */
    }
    jn_buffer_free(b);
    return s;
}

size_t jn_char(const char *s, size_t n, int32_t *code) {
    utf8proc_int32_t c;
    utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)(n < 4 ? n : 4), &c);
    *code = used > 0 ? c : -1;
    return used > 0 ? (size_t)used : 1;
}

size_t jn_char_offset(const char *s, size_t n, size_t index) {
    int32_t code;
    size_t at = 0;
    while (at < n && index--) at += (unsigned char)s[at] < 0x80 ? 1 : jn_char(s + at, n - at, &code);
    return at;
}

size_t jn_char_count(const char *s, size_t n) {
    int32_t code;
    size_t count = 0;
    for (size_t at = 0; at < n; count++) at += (unsigned char)s[at] < 0x80 ? 1 : jn_char(s + at, n - at, &code);
    return count;
}

bool jn_is_space(int32_t c) { /* Python's str.isspace */
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool strips(const jn_value *chars, const char *c, size_t n, int32_t code) {
    if (!chars) return jn_is_space(code);
    return memmem(chars->text, chars->size, c, n) != NULL;
}

jn_value jn_strip(const jn_value *s, const jn_value *chars, int sides) {
    size_t begin = 0, end = s->size;
    int32_t code;
    for (size_t n; (sides & 1) && begin < end; begin += n) {
        n = jn_char(s->text + begin, end - begin, &code);
        if (!strips(chars, s->text + begin, n, code)) break;
    }
    while ((sides & 2) && begin < end) {
        size_t at = end - 1;
        while (at > begin && end - at < 4 && ((unsigned char)s->text[at] & 0xC0) == 0x80) at--;
        size_t n = jn_char(s->text + at, end - at, &code);
        if (at + n != end) at = end - 1, code = -1, n = 1;
        if (!strips(chars, s->text + at, n, code)) break;
        end = at;
    }
    return jn_part(s, begin, end);
}

size_t jn_line_end(const jn_value *s, size_t at, size_t *next) {
    int32_t c;
    for (size_t n; at < s->size; at += n) {
        n = jn_char(s->text + at, s->size - at, &c);
        if (!((c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
        *next = at + n + (c == '\r' && at + 1 < s->size && s->text[at + 1] == '\n');
        return at;
    }
    return *next = at;
}

bool jn_find(const jn_value *in, const jn_value *what, size_t from, size_t *at) {
    if (from > in->size) return false;
    if (!what->size) return *at = from, true;
    const char *p = memmem(in->text + from, in->size - from, what->text, what->size);
    if (p) *at = (size_t)(p - in->text);
    return p != NULL;
}

sn_status jn_replace(jn_run *x, const jn_value *s, const jn_value *old, const jn_value *new, int64_t count, jn_value *out) {
    jn_buffer b = {0};
    size_t from = 0, at, search = 0;
    int32_t code;
    SN_TRY(jn_steps(x, s->size >> 4));
    while (count != 0 && !b.too_large && jn_find(s, old, search, &at)) {
        jn_value before = jn_part(s, from, at);
        jn_add(&b, &before);
        jn_add(&b, new);
        from = at + old->size;
        /* an empty `old` stands before each character and at the end */
        search = old->size ? from : at < s->size ? at + jn_char(s->text + at, s->size - at, &code) : s->size + 1;
        count--;
    }
    jn_value rest = jn_part(s, from, s->size);
    jn_add(&b, &rest);
    return jn_buffer_value(x, &b, out);
}

static void add_code(jn_buffer *b, int32_t code, bool masked) {
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t n = utf8proc_encode_char(code, bytes);
    jn_add_bytes(b, (char *)bytes, n > 0 ? (size_t)n : 0, masked);
}

static bool is_cased(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || utf8proc_toupper(c) != c ||
           utf8proc_tolower(c) != c;
}

sn_status jn_change_case(jn_run *x, const jn_value *s, char how, jn_value *out) {
    jn_buffer b = {0};
    bool first = true;
    int32_t c;
    SN_TRY(jn_steps(x, s->size >> 4));
    for (size_t at = 0, n; at < s->size; at += n) {
        n = jn_char(s->text + at, s->size - at, &c);
        bool masked = s->as.mask && s->as.mask[at];
        if (c < 0) jn_add_bytes(&b, s->text + at, n, masked);
        else if (how == 'u' && c == 0xDF) jn_add_bytes(&b, "SS", 2, masked); /* the one common letter that grows */
        else if (how == 'u') add_code(&b, utf8proc_toupper(c), masked);
        else if (how == 'l' || !first) add_code(&b, utf8proc_tolower(c), masked);
        else add_code(&b, utf8proc_totitle(c), masked);
        first = how == 't' && (c < 0 || !is_cased(c));
    }
    return jn_buffer_value(x, &b, out);
}

/* Shortest digits that read back as the same number, laid out as Python does: an exponent below -4 and from 16 on. */
int jn_float_text(double f, char out[40]) {
    if (isnan(f)) return snprintf(out, 40, "nan");
    if (isinf(f)) return snprintf(out, 40, f < 0 ? "-inf" : "inf");
    char text[40], digits[20], *p = out;
    int precision = 0, n = 0, exponent;
    do snprintf(text, sizeof text, "%.*e", precision, f);
    while (strtod(text, NULL) != f && ++precision < 17);
    const char *e = strchr(text, 'e');
    for (const char *c = text; c < e; c++) {
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    }
    while (n > 1 && digits[n - 1] == '0') n--;
    exponent = atoi(e + 1);
    if (*text == '-') *p++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *p++ = digits[0];
        if (n > 1) p += sprintf(p, ".%.*s", n - 1, digits + 1);
        p += sprintf(p, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        p += sprintf(p, "0.");
        for (int i = -1; i > exponent; i--) *p++ = '0';
        p += sprintf(p, "%.*s", n, digits);
    } else {
        for (int i = 0; i <= exponent; i++) *p++ = i < n ? digits[i] : '0';
        *p++ = '.';
        if (n > exponent + 1) p += sprintf(p, "%.*s", n - exponent - 1, digits + exponent + 1);
        else *p++ = '0';
        *p = 0;
    }
    return (int)(p - out);
}

static bool printable(int32_t c) { /* Python's str.isprintable */
    if (c == ' ') return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

static void repr_string(jn_buffer *b, const jn_value *s) {
    char quote = memchr(s->text, '\'', s->size) && !memchr(s->text, '"', s->size) ? '"' : '\'', escape[16];
    int32_t c;
    jn_add_bytes(b, &quote, 1, false);
    for (size_t at = 0, n; at < s->size; at += n) {
        n = jn_char(s->text + at, s->size - at, &c);
        bool masked = s->as.mask && s->as.mask[at];
        escape[0] = 0;
        if (c == quote || c == '\\') sprintf(escape, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t') sprintf(escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c >= 0 && !printable(c)) sprintf(escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
        if (escape[0]) jn_add_bytes(b, escape, strlen(escape), masked);
        else jn_add_bytes(b, s->text + at, n, masked);
    }
    jn_add_bytes(b, &quote, 1, false);
}

static sn_status repr_list(jn_run *x, jn_buffer *b, const jn_value *v) {
    const jn_list *l = v->as.list;
    jn_add_text(b, v->kind == JN_LIST ? "[" : "(");
    for (size_t i = 0; i < l->count; i++) {
        if (i) jn_add_text(b, ", ");
        SN_TRY(jn_repr(x, b, &l->items[i]));
    }
    if (v->kind == JN_TUPLE && l->count == 1) jn_add_text(b, ",");
    jn_add_text(b, v->kind == JN_LIST ? "]" : ")");
    return SN_OK;
}

static sn_status repr_dict(jn_run *x, jn_buffer *b, const jn_dict *d) {
    jn_add_text(b, "{");
    for (size_t i = 0; i < d->count; i++) {
        if (i) jn_add_text(b, ", ");
        SN_TRY(jn_repr(x, b, &d->pairs[i].key));
        jn_add_text(b, ": ");
        SN_TRY(jn_repr(x, b, &d->pairs[i].value));
    }
    jn_add_text(b, "}");
    return SN_OK;
}

sn_status jn_repr(jn_run *x, jn_buffer *b, const jn_value *v) {
    char number[40];
    SN_TRY(jn_enter(x));
    switch (v->kind) {
    case JN_UNDEFINED: jn_add_text(b, "Undefined"); break;
    case JN_NONE: jn_add_text(b, "None"); break;
    case JN_BOOL: jn_add_text(b, v->as.i ? "True" : "False"); break;
    case JN_INT:
        sprintf(number, "%lld", (long long)v->as.i);
        jn_add_text(b, number);
        break;
    case JN_FLOAT: jn_add_bytes(b, number, (size_t)jn_float_text(v->as.f, number), false); break;
    case JN_STRING: repr_string(b, v); break;
    case JN_LIST:
    case JN_TUPLE: SN_TRY(repr_list(x, b, v)); break;
    case JN_DICT: SN_TRY(repr_dict(x, b, v->as.dict)); break;
    default: return jn_fail(x, "a value of type '%s' cannot be printed", jn_kind_name(v));
    }
    x->depth--;
    return SN_OK;
}

sn_status jn_print(jn_run *x, jn_buffer *b, const jn_value *v) {
    if (v->kind == JN_STRING) jn_add(b, v);
    else if (v->kind != JN_UNDEFINED) return jn_repr(x, b, v);
    return SN_OK;
}

sn_status jn_to_string(jn_run *x, const jn_value *v, jn_value *out) {
    jn_buffer b = {0};
    if (v->kind == JN_STRING) {
        *out = *v;
        return SN_OK;
    }
    sn_status s = jn_print(x, &b, v);
    if (s == SN_OK) return jn_buffer_value(x, &b, out);
    jn_buffer_free(&b);
    return s;
}
