#include "io/json.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void sn_json_start(sn_json *r, const char *name, const char *source, size_t size) {
    *r = (sn_json){.name = name, .source = source, .source_size = size, .first = true, .text = ""};
}

void sn_json_end(sn_json *r) {
    sn_str_free(&r->decoded);
    r->text = "";
    r->size = 0;
}

const char *sn_json_type_name(sn_json_type type) {
    static const char *const names[] = {"object", "end of object", "array", "end of array", "key",        "string",
                                        "number", "true",          "false", "null",         "end of text"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "?";
}

/* Lines and columns (in bytes) are counted only when something went wrong. */
static sn_status fail_at(const sn_json *r, size_t at, const char *format, va_list args) {
    char message[512];
    size_t line = 1, column = 1;
    vsnprintf(message, sizeof message, format, args);
    for (size_t i = 0; i < at && i < r->source_size; i++) {
        column++;
        if (r->source[i] == '\n') line++, column = 1;
    }
    return sn_fail(SN_ERR_FORMAT, "%s:%zu:%zu: %s", r->name, line, column, message);
}

sn_status sn_json_fail(const sn_json *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    sn_status s = fail_at(r, r->start, format, args);
    va_end(args);
    return s;
}

__attribute__((format(printf, 3, 4))) static sn_status fail_here(const sn_json *r, size_t at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    sn_status s = fail_at(r, at, format, args);
    va_end(args);
    return s;
}

static int peek(const sn_json *r, size_t at) { return at < r->source_size ? (unsigned char)r->source[at] : -1; }

static sn_status unexpected(const sn_json *r, const char *wanted) {
    int c = peek(r, r->end);
    if (c < 0) return fail_here(r, r->end, "wanted %s, found the end of the text", wanted);
    if (c > 32 && c < 127) return fail_here(r, r->end, "wanted %s, found '%c'", wanted, c);
    return fail_here(r, r->end, "wanted %s, found byte 0x%02x", wanted, (unsigned)c);
}

static void skip_space(sn_json *r) {
    for (;;) {
        int c = peek(r, r->end);
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
        r->end++;
    }
}

/* Bytes of the well-formed UTF-8 sequence at `at` (Unicode 15, table 3-7), 0 when there is none. */
static size_t utf8_sequence(const sn_json *r, size_t at) {
    int c = peek(r, at), second = peek(r, at + 1);
    if (c < 0x80) return 1;
    size_t n = c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (!n) return 0;
    int low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    if (second < low || second > high) return 0;
    for (size_t i = 2; i < n; i++)
        if ((peek(r, at + i) & 0xC0) != 0x80 || peek(r, at + i) < 0) return 0;
    return n;
}

static bool hex4(const sn_json *r, size_t at, uint32_t *out) {
    *out = 0;
    for (size_t i = 0; i < 4; i++) {
        int c = peek(r, at + i);
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static void append_utf8(sn_str *s, uint32_t c) {
    if (c < 0x80) {
        sn_str_char(s, (char)c);
    } else if (c < 0x800) {
        sn_str_char(s, (char)(0xC0 | c >> 6));
        sn_str_char(s, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        sn_str_char(s, (char)(0xE0 | c >> 12));
        sn_str_char(s, (char)(0x80 | (c >> 6 & 63)));
        sn_str_char(s, (char)(0x80 | (c & 63)));
    } else {
        sn_str_char(s, (char)(0xF0 | c >> 18));
        sn_str_char(s, (char)(0x80 | (c >> 12 & 63)));
        sn_str_char(s, (char)(0x80 | (c >> 6 & 63)));
        sn_str_char(s, (char)(0x80 | (c & 63)));
    }
}

/* r->end stands on the backslash. */
static sn_status read_escape(sn_json *r) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t at = r->end;
    int c = peek(r, at + 1);
    const char *known = c > 0 ? strchr(letters, c) : NULL;
    if (known) {
        sn_str_char(&r->decoded, meanings[known - letters]);
        r->end += 2;
        return SN_OK;
    }
    uint32_t high, low;
    if (c != 'u') return fail_here(r, at, "unknown escape in a string");
    if (!hex4(r, at + 2, &high)) return fail_here(r, at, "\\u needs four hexadecimal digits");
    r->end += 6;
    if (high >= 0xDC00 && high <= 0xDFFF) return fail_here(r, at, "unpaired low surrogate \\u%04x", high);
    if (high >= 0xD800 && high <= 0xDBFF) {
        if (peek(r, r->end) != '\\' || peek(r, r->end + 1) != 'u' || !hex4(r, r->end + 2, &low) || low < 0xDC00 || low > 0xDFFF)
            return fail_here(r, at, "unpaired high surrogate \\u%04x", high);
        r->end += 6;
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(&r->decoded, high);
    return SN_OK;
}

static sn_status take_decoded(sn_json *r) {
    sn_str_append(&r->decoded, "", 0); /* an empty string gets its NUL */
    if (r->decoded.failed) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a string of %zu bytes", r->name, r->end - r->start);
    r->text = r->decoded.data;
    r->size = r->decoded.size;
    return SN_OK;
}

static sn_status read_string(sn_json *r) {
    sn_str_clear(&r->decoded);
    r->end++;
    for (;;) {
        size_t plain = r->end;
        int c;
        while ((c = peek(r, r->end)) >= 0x20 && c != '"' && c != '\\') {
            size_t n = utf8_sequence(r, r->end);
            if (!n) return fail_here(r, r->end, "invalid UTF-8 (byte 0x%02x)", (unsigned)c);
            r->end += n;
        }
        sn_str_append(&r->decoded, r->source + plain, r->end - plain);
        if (c == '"') break;
        if (c < 0) return fail_here(r, r->start, "string without an end");
        if (c != '\\') return fail_here(r, r->end, "control character 0x%02x in a string", (unsigned)c);
        SN_TRY(read_escape(r));
    }
    r->end++;
    return take_decoded(r);
}

static bool skip_digits(sn_json *r) {
    size_t from = r->end;
    while (peek(r, r->end) >= '0' && peek(r, r->end) <= '9') r->end++;
    return r->end > from;
}

static sn_status read_number(sn_json *r) {
    if (peek(r, r->end) == '-') r->end++;
    if (peek(r, r->end) == '0') {
        r->end++;
    } else if (!skip_digits(r)) {
        return unexpected(r, "a digit");
    }
    if (peek(r, r->end) == '.') {
        r->end++;
        if (!skip_digits(r)) return unexpected(r, "a digit");
    }
    if (peek(r, r->end) == 'e' || peek(r, r->end) == 'E') {
        r->end++;
        if (peek(r, r->end) == '+' || peek(r, r->end) == '-') r->end++;
        if (!skip_digits(r)) return unexpected(r, "a digit");
    }
    sn_str_clear(&r->decoded);
    sn_str_append(&r->decoded, r->source + r->start, r->end - r->start);
    r->type = SN_JSON_NUMBER;
    return take_decoded(r);
}

static sn_status read_word(sn_json *r) {
    static const struct {
        const char *word;
        sn_json_type type;
    } words[] = {{"true", SN_JSON_TRUE}, {"false", SN_JSON_FALSE}, {"null", SN_JSON_NULL}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);
        if (r->source_size - r->end < n || memcmp(r->source + r->end, words[i].word, n)) continue;
        r->end += n;
        r->type = words[i].type;
        return SN_OK;
    }
    return unexpected(r, "a value");
}

static sn_status open_level(sn_json *r, char c, sn_json_type type) {
    if (r->depth == SN_JSON_MAX_DEPTH) return fail_here(r, r->end, "more than %d levels", SN_JSON_MAX_DEPTH);
    r->open[r->depth++] = c;
    r->end++;
    r->first = true;
    r->after_key = false;
    r->type = type;
    return SN_OK;
}

static sn_status close_level(sn_json *r, sn_json_type type) {
    r->depth--;
    r->end++;
    r->first = r->after_key = false;
    r->type = type;
    return SN_OK;
}

static sn_status read_value(sn_json *r) {
    int c = peek(r, r->end);
    r->start = r->end;
    if (c == '{') return open_level(r, '{', SN_JSON_OBJECT);
    if (c == '[') return open_level(r, '[', SN_JSON_ARRAY);
    if (c == '"') {
        SN_TRY(read_string(r));
        r->type = SN_JSON_STRING;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        SN_TRY(read_number(r));
    } else {
        SN_TRY(read_word(r));
    }
    r->first = r->after_key = false;
    return SN_OK;
}

static sn_status read_key(sn_json *r) {
    if (peek(r, r->end) != '"') return unexpected(r, "a key");
    r->start = r->end;
    SN_TRY(read_string(r));
    skip_space(r);
    if (peek(r, r->end) != ':') return unexpected(r, "':'");
    r->end++;
    r->after_key = true;
    r->type = SN_JSON_KEY;
    return SN_OK;
}

sn_status sn_json_next(sn_json *r) {
    r->text = "";
    r->size = 0;
    skip_space(r);
    r->start = r->end;
    if (!r->depth) {
        if (r->first) return read_value(r);
        if (r->end < r->source_size) return unexpected(r, "the end of the text");
        r->type = SN_JSON_EOF;
        return SN_OK;
    }
    bool object = r->open[r->depth - 1] == '{';
    if (r->after_key) return read_value(r);
    if (peek(r, r->end) == (object ? '}' : ']')) return close_level(r, object ? SN_JSON_OBJECT_END : SN_JSON_ARRAY_END);
    if (!r->first) {
        if (peek(r, r->end) != ',') return unexpected(r, object ? "',' or '}'" : "',' or ']'");
        r->end++;
        skip_space(r);
    }
    return object ? read_key(r) : read_value(r);
}

sn_status sn_json_want(sn_json *r, sn_json_type type) {
    SN_TRY(sn_json_next(r));
    if (r->type == type) return SN_OK;
    return sn_json_fail(r, "wanted %s, found %s", sn_json_type_name(type), sn_json_type_name(r->type));
}

sn_status sn_json_skip(sn_json *r) {
    if (r->type == SN_JSON_KEY) SN_TRY(sn_json_next(r));
    if (r->type != SN_JSON_OBJECT && r->type != SN_JSON_ARRAY) return SN_OK;
    int outside = r->depth - 1;
    while (r->depth > outside) SN_TRY(sn_json_next(r));
    return SN_OK;
}

static sn_status want_current(sn_json *r, sn_json_type type, const char *wanted) {
    if (r->type == type) return SN_OK;
    return sn_json_fail(r, "wanted %s, found %s", wanted, sn_json_type_name(r->type));
}

static sn_status want_integer(sn_json *r) {
    SN_TRY(want_current(r, SN_JSON_NUMBER, "an integer"));
    if (strpbrk(r->text, ".eE")) return sn_json_fail(r, "wanted an integer, found %.40s", r->text);
    return SN_OK;
}

sn_status sn_json_i64(sn_json *r, int64_t *out) {
    SN_TRY(want_integer(r));
    errno = 0;
    long long value = strtoll(r->text, NULL, 10);
    if (errno) return sn_json_fail(r, "%.40s does not fit in 64 bits", r->text);
    *out = value;
    return SN_OK;
}

sn_status sn_json_u64(sn_json *r, uint64_t *out) {
    SN_TRY(want_integer(r));
    if (r->text[0] == '-' && strcmp(r->text, "-0")) return sn_json_fail(r, "wanted a number >= 0, found %.40s", r->text);
    errno = 0;
    unsigned long long value = strtoull(r->text, NULL, 10);
    if (errno) return sn_json_fail(r, "%.40s does not fit in 64 bits", r->text);
    *out = value;
    return SN_OK;
}

sn_status sn_json_f64(sn_json *r, double *out) {
    SN_TRY(want_current(r, SN_JSON_NUMBER, "a number"));
    char *point = strchr(r->decoded.data, '.');
    const char *local = localeconv()->decimal_point; /* strtod reads the host program's decimal point */
    if (point && local[0] && !local[1]) *point = local[0];
    *out = strtod(r->text, NULL);
    if (point) *point = '.';
    return SN_OK;
}

sn_status sn_json_bool(sn_json *r, bool *out) {
    if (r->type != SN_JSON_TRUE) SN_TRY(want_current(r, SN_JSON_FALSE, "true or false"));
    *out = r->type == SN_JSON_TRUE;
    return SN_OK;
}

sn_status sn_json_string(sn_json *r, char **out) {
    SN_TRY(want_current(r, SN_JSON_STRING, "a string"));
    if (memchr(r->text, 0, r->size)) return sn_json_fail(r, "NUL byte in a string that may not hold one");
    *out = sn_strndup(r->text, r->size);
    return *out ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate %zu bytes", r->name, r->size);
}

sn_status sn_json_read_i64(sn_json *r, int64_t *out) {
    SN_TRY(sn_json_next(r));
    return sn_json_i64(r, out);
}
sn_status sn_json_read_u64(sn_json *r, uint64_t *out) {
    SN_TRY(sn_json_next(r));
    return sn_json_u64(r, out);
}
sn_status sn_json_read_f64(sn_json *r, double *out) {
    SN_TRY(sn_json_next(r));
    return sn_json_f64(r, out);
}
sn_status sn_json_read_bool(sn_json *r, bool *out) {
    SN_TRY(sn_json_next(r));
    return sn_json_bool(r, out);
}
sn_status sn_json_read_string(sn_json *r, char **out) {
    SN_TRY(sn_json_next(r));
    return sn_json_string(r, out);
}

bool sn_json_is(const sn_json *r, const char *text) {
    return (r->type == SN_JSON_KEY || r->type == SN_JSON_STRING) && r->size == strlen(text) && !memcmp(r->text, text, r->size);
}
