/* A growing string. Zero-initialise to start; after a failed append `failed` is set and the rest are ignored,
 * so a caller may build a whole text and check once. */
#ifndef SN_BASE_STR_H
#define SN_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sn_str {
    char *data; /* NUL-terminated once anything was appended; NULL before */
    size_t size, capacity;
    bool failed;
} sn_str;

void sn_str_append(sn_str *s, const char *bytes, size_t n);
void sn_str_add(sn_str *s, const char *text);
void sn_str_char(sn_str *s, char c);
void sn_str_printf(sn_str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a JSON string literal with quotes; invalid UTF-8 is kept byte for byte. */
void sn_str_json(sn_str *s, const char *bytes, size_t n);
void sn_str_clear(sn_str *s); /* keeps the memory */
void sn_str_free(sn_str *s);

#endif
