/* Template text to tokens. Whitespace control follows Jinja's lexer with trim_blocks and lstrip_blocks on and
 * keep_trailing_newline off: line ends become \n, one at the very end is dropped. */
#define _GNU_SOURCE /* memmem */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/jinja.h"

typedef struct lexer {
    sn_pool *pool;
    const char *s;
    size_t size, at;
    int line;
    bool line_start; /* the last tag ended at a line's end, so that white space before the next tag is indentation */
    jn_token *tokens;
    size_t count, capacity;
} lexer;

static sn_status bad(const lexer *l, const char *what) { return sn_fail(SN_ERR_FORMAT, "chat template line %d: %s", l->line, what); }

static sn_status no_memory(void) { return sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate memory"); }

static sn_status add(lexer *l, jn_token_kind kind, const char *text, size_t size) {
    if (l->count == l->capacity) { /* pool memory cannot grow in place: copy, the old array goes with the pool */
        size_t capacity = l->capacity ? l->capacity * 2 : 256;
        jn_token *tokens = sn_pool_alloc(l->pool, capacity * sizeof *tokens);
        if (!tokens) return no_memory();
        if (l->count) memcpy(tokens, l->tokens, l->count * sizeof *tokens);
        l->tokens = tokens;
        l->capacity = capacity;
    }
    l->tokens[l->count++] = (jn_token){.kind = kind, .line = l->line, .text = text, .size = size};
    return SN_OK;
}

static void advance(lexer *l, size_t to) {
    for (; l->at < to; l->at++) l->line += l->s[l->at] == '\n';
}

static char peek(const lexer *l, size_t offset) { return l->at + offset < l->size ? l->s[l->at + offset] : 0; }

static size_t skip_space(const lexer *l, size_t at) {
    for (int32_t c; at < l->size;) {
        size_t n = jn_char(l->s + at, l->size - at, &c);
        if (!jn_is_space(c)) break;
        at += n;
    }
    return at;
}

/* Passes a tag's end at l->at: an optional sign, two characters, and the white space that they take with them. */
static void pass_end(lexer *l, bool trims_newline) {
    char sign = peek(l, 0) == '-' || peek(l, 0) == '+' ? peek(l, 0) : 0;
    size_t end = l->at + (sign ? 3 : 2);
    if (sign == '-') end = skip_space(l, end);
    else if (!sign && trims_newline && end < l->size && l->s[end] == '\n') end++;
    l->line_start = l->s[end - 1] == '\n';
    advance(l, end);
}

static bool at_end(const lexer *l, char first, bool plus) {
    if (peek(l, 0) == first && peek(l, 1) == '}') return true;
    return (peek(l, 0) == '-' || (plus && peek(l, 0) == '+')) && peek(l, 1) == first && peek(l, 2) == '}';
}

static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) return out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)), out[2] = (char)(0x80 | (c & 63)), 3;
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

static bool read_number(const char *s, size_t n, int base, uint32_t *out) {
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        int c = s[i], digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
        if (digit >= base) return false;
        *out = *out * (uint32_t)base + (uint32_t)digit;
    }
    return true;
}

/* Decodes Python's escapes; text it does not know stays as it is, with its backslash. */
static sn_status unescape(lexer *l, const char *s, size_t n, char *out, size_t *size) {
    static const char from[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\\' || i + 1 == n) {
            out[k++] = s[i];
            continue;
        }
        char c = s[++i];
        const char *simple = c ? strchr(from, c) : NULL;
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        uint32_t code;
        if (simple) {
            out[k++] = to[simple - from];
        } else if (c == '\n') {
            continue;
        } else if (digits) {
            if (n - i - 1 < digits || !read_number(s + i + 1, digits, 16, &code)) return bad(l, "a \\x, \\u or \\U escape lacks digits");
            if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return bad(l, "an escape is not a Unicode character");
            k += put_utf8(out + k, code);
            i += digits;
        } else if (c >= '0' && c <= '7') {
            size_t m = 1;
            while (m < 3 && i + m < n && s[i + m] >= '0' && s[i + m] <= '7') m++;
            read_number(s + i, m, 8, &code);
            k += put_utf8(out + k, code);
            i += m - 1;
        } else {
            out[k++] = '\\';
            out[k++] = c;
        }
    }
    *size = k;
    return SN_OK;
}

static sn_status lex_string(lexer *l) {
    char quote = peek(l, 0);
    size_t end = l->at + 1, size = 0;
    while (end < l->size && l->s[end] != quote) end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->size) return bad(l, "a string has no end");
    size_t n = end - l->at - 1;
    char *text = sn_pool_alloc(l->pool, n + 1); /* no escape decodes to more bytes than it is written with */
    if (!text) return no_memory();
    SN_TRY(unescape(l, l->s + l->at + 1, n, text, &size));
    SN_TRY(add(l, JN_T_STRING, text, size));
    advance(l, end + 1);
    return SN_OK;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || (unsigned char)c >= 0x80; }

static sn_status lex_number(lexer *l) {
    char digits[64];
    size_t n = 0, at = l->at;
    int base = 10;
    bool fraction = false;
    char mark = (char)(peek(l, 1) | 32);
    if (peek(l, 0) == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
        base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
        at += 2;
    }
    for (; at < l->size && n + 2 < sizeof digits; at++) { /* an exponent takes two at once */
        char c = l->s[at], next = at + 1 < l->size ? l->s[at + 1] : 0;
        if (c == '_') continue;
        if (base == 10 && c == '.' && !fraction && is_digit(next)) fraction = true;
        else if (base == 10 && (c | 32) == 'e' && n && (is_digit(next) || next == '-' || next == '+')) {
            char after = at + 2 < l->size ? l->s[at + 2] : 0;
            if (!is_digit(next) && !is_digit(after)) break;
            fraction = true;
            digits[n++] = c;
            c = l->s[++at];
        } else if (!(base == 16 ? is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f') : is_digit(c))) break;
        digits[n++] = c;
    }
    digits[n] = 0;
    SN_TRY(add(l, fraction ? JN_T_FLOAT : JN_T_INT, l->s + l->at, at - l->at));
    jn_token *t = &l->tokens[l->count - 1];
    char *end;
    errno = 0;
    if (fraction) t->f = strtod(digits, &end);
    else t->i = strtoll(digits, &end, base);
    if (!n || *end || (errno && !fraction)) return bad(l, "a number is malformed or too large");
    advance(l, at);
    return SN_OK;
}

static sn_status lex_operator(lexer *l, char *stack, int *open) {
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (peek(l, 0) != two[i][0] || peek(l, 1) != two[i][1]) continue;
        SN_TRY(add(l, JN_T_OPERATOR, two[i], 2));
        l->at += 2;
        return SN_OK;
    }
    char c = peek(l, 0);
    if (!c || !strchr("+-*/%~<>=()[]{}.,:|;", c)) return bad(l, "an unexpected character in an expression");
    if (strchr("([{", c)) {
        if (*open == JN_MAX_DEPTH) return bad(l, "brackets are nested too deeply");
        stack[(*open)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (!*open || stack[--*open] != c) return bad(l, "a closing bracket without its opening one");
    }
    SN_TRY(add(l, JN_T_OPERATOR, l->s + l->at, 1));
    l->at++;
    return SN_OK;
}

/* From after "{{" or "{%" to the tag's end. */
static sn_status lex_expression(lexer *l, bool block) {
    char stack[JN_MAX_DEPTH];
    int open = 0;
    for (;;) {
        advance(l, skip_space(l, l->at));
        if (l->at >= l->size) return bad(l, block ? "a {% has no %}" : "a {{ has no }}");
        if (!open && at_end(l, block ? '%' : '}', block)) break;
        char c = peek(l, 0);
        if (c == '\'' || c == '"') SN_TRY(lex_string(l));
        else if (is_digit(c)) SN_TRY(lex_number(l));
        else if (is_name(c)) {
            size_t end = l->at;
            while (end < l->size && is_name(l->s[end])) end++;
            SN_TRY(add(l, JN_T_NAME, l->s + l->at, end - l->at));
            l->at = end;
        } else SN_TRY(lex_operator(l, stack, &open));
    }
    SN_TRY(add(l, block ? JN_T_BLOCK_END : JN_T_OUTPUT_END, l->s + l->at, 2));
    pass_end(l, block);
    return SN_OK;
}

/* Adds the text before a tag at `tag`, cut as the tag's sign and lstrip_blocks say. */
static sn_status add_data(lexer *l, size_t tag, char sign, bool indented) {
    jn_value text = {.kind = JN_STRING, .text = l->s + l->at, .size = tag - l->at};
    if (sign == '-') {
        text = jn_strip(&text, NULL, 2);
    } else if (sign != '+' && indented) {
        size_t start = text.size;
        while (start && text.text[start - 1] != '\n') start--;
        jn_value tail = jn_part(&text, start, text.size);
        if ((start || l->line_start) && jn_strip(&tail, NULL, 3).size == 0) text.size = start;
    }
    if (text.size) SN_TRY(add(l, JN_T_DATA, text.text, text.size));
    advance(l, tag);
    return SN_OK;
}

static size_t find(const lexer *l, size_t from, const char *what) {
    const char *p = from < l->size ? memmem(l->s + from, l->size - from, what, strlen(what)) : NULL;
    return p ? (size_t)(p - l->s) : l->size;
}

/* The position after "raw" or "endraw" and its %} when a tag of that name stands at `at`, else 0. *end is where the %} begins. */
static bool named_tag(const lexer *l, size_t at, const char *name, size_t *end) {
    at += 2;
    if (at < l->size && (l->s[at] == '-' || l->s[at] == '+')) at++;
    at = skip_space(l, at);
    size_t n = strlen(name);
    if (l->size - at < n || memcmp(l->s + at, name, n)) return false;
    *end = skip_space(l, at + n);
    lexer there = *l;
    there.at = *end;
    return at_end(&there, '%', true);
}

static sn_status lex_raw(lexer *l, size_t end) {
    advance(l, end);
    pass_end(l, false); /* Jinja keeps the line end here */
    size_t tag = l->at;
    while ((tag = find(l, tag, "{%")) < l->size && !named_tag(l, tag, "endraw", &end)) tag += 2;
    if (tag >= l->size) return bad(l, "{% raw %} has no {% endraw %}");
    SN_TRY(add_data(l, tag, tag + 2 < l->size ? l->s[tag + 2] : 0, true));
    advance(l, end);
    pass_end(l, true);
    return SN_OK;
}

static sn_status lex_all(lexer *l) {
    while (l->at < l->size) {
        size_t tag = l->at, end;
        while (tag < l->size && !(l->s[tag] == '{' && tag + 1 < l->size && strchr("{%#", l->s[tag + 1]) && l->s[tag + 1])) tag++;
        if (tag == l->size) return add(l, JN_T_DATA, l->s + l->at, l->size - l->at);
        char what = l->s[tag + 1], sign = tag + 2 < l->size ? l->s[tag + 2] : 0;
        if (sign != '-' && sign != '+') sign = 0;
        SN_TRY(add_data(l, tag, sign, what != '{'));
        l->line_start = false;
        if (what == '#') {
            end = find(l, tag + 2, "#}");
            if (end == l->size) return bad(l, "a {# has no #}");
            if (end > tag + 2 && (l->s[end - 1] == '-' || l->s[end - 1] == '+')) end--;
            advance(l, end);
            pass_end(l, true);
        } else if (what == '%' && named_tag(l, tag, "raw", &end)) {
            SN_TRY(lex_raw(l, end));
        } else {
            SN_TRY(add(l, what == '%' ? JN_T_BLOCK : JN_T_OUTPUT, l->s + tag, 2));
            l->at = tag + (sign ? 3 : 2);
            SN_TRY(lex_expression(l, what == '%'));
        }
    }
    return SN_OK;
}

sn_status jn_lex(sn_pool *pool, const char *source, size_t size, jn_token **out) {
    if (size > JN_MAX_SOURCE) return sn_fail(SN_ERR_FORMAT, "chat template has %zu bytes, more than the %d allowed", size, JN_MAX_SOURCE);
    char *copy = sn_pool_alloc(pool, size + 1);
    if (!copy) return no_memory();
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < size && source[i + 1] == '\n') i++;
    }
    if (n && copy[n - 1] == '\n') n--;
    copy[n] = 0;
    lexer l = {.pool = pool, .s = copy, .size = n, .line = 1, .line_start = true};
    SN_TRY(lex_all(&l));
    SN_TRY(add(&l, JN_T_END, copy + n, 0));
    *out = l.tokens;
    return SN_OK;
}
