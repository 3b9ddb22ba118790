/* A pull reader for JSON (RFC 8259): one token a call, over a text that lies in memory.
 *
 * It keeps one decoded token and a stack of one byte a level, so a 7 MB tokenizer.json costs no more than its own text;
 * time is linear. A whole object is read as
 *
 *     sn_json r;
 *     sn_json_start(&r, "config.json", text, size);
 *     SN_TRY_GOTO(s, done, sn_json_want(&r, SN_JSON_OBJECT));
 *     for (;;) {
 *         SN_TRY_GOTO(s, done, sn_json_next(&r));
 *         if (r.type == SN_JSON_OBJECT_END) break;            otherwise r.type is SN_JSON_KEY
 *         if (sn_json_is(&r, "vocab_size")) {
 *             SN_TRY_GOTO(s, done, sn_json_read_i64(&r, &vocab_size));
 *         } else {
 *             SN_TRY_GOTO(s, done, sn_json_skip(&r));         the key's whole value
 *         }
 *     }
 *     SN_TRY_GOTO(s, done, sn_json_want(&r, SN_JSON_EOF));
 *     done: sn_json_end(&r);
 *
 * Every fault is SN_ERR_FORMAT with "name:line:column: ...". Refused beyond the grammar: invalid UTF-8, unpaired
 * surrogate escapes, more than SN_JSON_MAX_DEPTH levels. Duplicate keys are the caller's matter: see sn_names. */
#ifndef SN_IO_JSON_H
#define SN_IO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum { SN_JSON_MAX_DEPTH = 256 };

typedef enum sn_json_type {
    SN_JSON_OBJECT,
    SN_JSON_OBJECT_END,
    SN_JSON_ARRAY,
    SN_JSON_ARRAY_END,
    SN_JSON_KEY,
    SN_JSON_STRING,
    SN_JSON_NUMBER,
    SN_JSON_TRUE,
    SN_JSON_FALSE,
    SN_JSON_NULL,
    SN_JSON_EOF
} sn_json_type;

typedef struct sn_json {
    sn_json_type type; /* of the current token */
    const char *text;  /* key, string: decoded; number: as written. NUL-terminated, valid until the next token */
    size_t size;       /* bytes of text (a decoded string may hold NUL bytes) */
    size_t start, end; /* the current token's place in the source, in bytes: raw values can be copied from there */
    int depth;         /* open objects and arrays, after the current token */

    const char *name, *source;
    size_t source_size;
    sn_str decoded;
    bool first, after_key;
    char open[SN_JSON_MAX_DEPTH]; /* '{' or '[' */
} sn_json;

/* `name` stands in messages; both it and `source` must outlive the reader. sn_json_end frees the decoded token. */
void sn_json_start(sn_json *r, const char *name, const char *source, size_t size);
void sn_json_end(sn_json *r);

/* Moves to the next token. SN_JSON_EOF follows the one value of the text; anything else there is an error. */
sn_status sn_json_next(sn_json *r);

/* Moves on and fails unless the token has this type ("wanted object, found string"). */
sn_status sn_json_want(sn_json *r, sn_json_type type);

/* Passes over a value: after a key the key's value, after the beginning of an object or array the rest of it, after
 * anything else nothing. The current token is then the value's last. */
sn_status sn_json_skip(sn_json *r);

/* Move on to one scalar value and convert it. Integers must be written as integers and fit. sn_json_read_string returns
 * a copy (sn_free it), without NUL bytes inside, or SN_ERR_FORMAT. */
sn_status sn_json_read_i64(sn_json *r, int64_t *out);
sn_status sn_json_read_u64(sn_json *r, uint64_t *out);
sn_status sn_json_read_f64(sn_json *r, double *out);
sn_status sn_json_read_bool(sn_json *r, bool *out);
sn_status sn_json_read_string(sn_json *r, char **out);

/* The same for the current token. */
sn_status sn_json_i64(sn_json *r, int64_t *out);
sn_status sn_json_u64(sn_json *r, uint64_t *out);
sn_status sn_json_f64(sn_json *r, double *out);
sn_status sn_json_bool(sn_json *r, bool *out);
sn_status sn_json_string(sn_json *r, char **out);

/* Is the current key or string equal to this text? */
bool sn_json_is(const sn_json *r, const char *text);

const char *sn_json_type_name(sn_json_type type); /* "object", "end of array", ... */

/* SN_ERR_FORMAT with the current token's place in front. */
sn_status sn_json_fail(const sn_json *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
