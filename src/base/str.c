#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static bool reserve(sn_str *s, size_t more) {
    size_t need;
    if (s->failed) return false;
    if (!sn_add(s->size, more, &need) || !sn_add(need, 1, &need)) return !(s->failed = true);
    if (need <= s->capacity) return true;
    size_t capacity = s->capacity ? s->capacity : 64;
    while (capacity < need) capacity *= 2;
    char *data = sn_realloc(s->data, capacity);
    if (!data) return !(s->failed = true);
    s->data = data;
    s->capacity = capacity;
    return true;
}

void sn_str_append(sn_str *s, const char *bytes, size_t n) {
    if (!reserve(s, n)) return;
    if (n) memcpy(s->data + s->size, bytes, n);
    s->size += n;
    s->data[s->size] = 0;
}

void sn_str_add(sn_str *s, const char *text) { sn_str_append(s, text, strlen(text)); }

void sn_str_char(sn_str *s, char c) { sn_str_append(s, &c, 1); }

void sn_str_printf(sn_str *s, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->data + s->size, (size_t)n + 1, format, again);
        s->size += (size_t)n;
    }
    va_end(again);
}

void sn_str_json(sn_str *s, const char *bytes, size_t n) {
    sn_str_char(s, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        switch (c) {
        case '"': sn_str_add(s, "\\\""); break;
        case '\\': sn_str_add(s, "\\\\"); break;
        case '\n': sn_str_add(s, "\\n"); break;
        case '\r': sn_str_add(s, "\\r"); break;
        case '\t': sn_str_add(s, "\\t"); break;
        default:
            if (c < 0x20) sn_str_printf(s, "\\u%04x", c);
            else sn_str_char(s, (char)c);
        }
    }
    sn_str_char(s, '"');
}

void sn_str_clear(sn_str *s) {
    s->size = 0;
    s->failed = false;
    if (s->data) s->data[0] = 0;
}

void sn_str_free(sn_str *s) {
    sn_free(s->data);
    *s = (sn_str){0};
}
