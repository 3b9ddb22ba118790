/* JSON in (jansson's values) and out (as Python's json.dumps, which transformers' tojson calls). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/jinja.h"

static sn_status string_in(jn_run *x, const char *text, size_t n, bool masked, jn_value *out) {
    char *copy = jn_alloc(x, n + 1);
    uint8_t *mask = copy && masked && n ? jn_alloc(x, n) : NULL;
    if (!copy || (masked && n && !mask)) return x->why;
    if (n) memcpy(copy, text, n);
    if (mask) memset(mask, 1, n);
    *out = (jn_value){.kind = JN_STRING, .text = copy, .size = n, .as.mask = mask};
    return SN_OK;
}

/* A role such as "user" is written between marks by some templates ("<|" + role + "|>") to make a control token, so plain
 * words are not masked there. They cannot make one by themselves. */
static bool is_plain_role(const char *key, const json_t *value) {
    if (strcmp(key, "role") || !json_is_string(value)) return false;
    const char *s = json_string_value(value);
    return strspn(s, "abcdefghijklmnopqrstuvwxyz_") == json_string_length(value);
}

static sn_status object_in(jn_run *x, const json_t *json, bool masked, jn_value *out) {
    const char *key;
    json_t *item;
    SN_TRY(jn_dict_new(x, JN_DICT, out));
    json_object_foreach((json_t *)json, key, item) {
        jn_value k, v;
        SN_TRY(string_in(x, key, strlen(key), masked, &k));
        SN_TRY(jn_from_json(x, item, masked && !is_plain_role(key, item), &v));
        SN_TRY(jn_dict_add(x, out->as.dict, &k, &v));
    }
    return SN_OK;
}

sn_status jn_from_json(jn_run *x, const json_t *json, bool masked, jn_value *out) {
    SN_TRY(jn_enter(x));
    switch (json_typeof(json)) {
    case JSON_OBJECT: SN_TRY(object_in(x, json, masked, out)); break;
    case JSON_ARRAY:
        SN_TRY(jn_list_new(x, JN_LIST, json_array_size(json), out));
        for (size_t i = 0; i < json_array_size(json); i++) {
            jn_value v;
            SN_TRY(jn_from_json(x, json_array_get(json, i), masked, &v));
            SN_TRY(jn_list_add(x, out->as.list, &v));
        }
        break;
    case JSON_STRING: SN_TRY(string_in(x, json_string_value(json), json_string_length(json), masked, out)); break;
    case JSON_INTEGER: *out = jn_int(json_integer_value(json)); break;
    case JSON_REAL: *out = jn_float(json_real_value(json)); break;
    case JSON_TRUE: *out = jn_bool(true); break;
    case JSON_FALSE: *out = jn_bool(false); break;
    default: *out = (jn_value){.kind = JN_NONE}; break;
    }
    x->depth--;
    return SN_OK;
}

typedef struct style {
    bool ascii, sort;
    jn_value indent; /* a string, or JN_NONE for one line */
    const char *item, *key;
} style;

static void escape_char(int32_t c, bool ascii, char out[16]) { /* "": as it is */
    out[0] = 0;
    switch (c) {
    case '"':
    case '\\': sprintf(out, "\\%c", c); break;
    case '\n': strcpy(out, "\\n"); break;
    case '\r': strcpy(out, "\\r"); break;
    case '\t': strcpy(out, "\\t"); break;
    case '\b': strcpy(out, "\\b"); break;
    case '\f': strcpy(out, "\\f"); break;
    default:
        if ((c >= 0 && c < 32) || (ascii && c > 127 && c < 0x10000)) sprintf(out, "\\u%04x", (unsigned)c);
        else if (ascii && c >= 0x10000) sprintf(out, "\\u%04x\\u%04x", 0xD7C0u + ((unsigned)c >> 10), 0xDC00u + ((unsigned)c & 0x3FF));
    }
}

static void string_out(jn_buffer *b, const jn_value *s, bool ascii) {
    char escape[16];
    int32_t c;
    jn_add_text(b, "\"");
    for (size_t at = 0, n; at < s->size; at += n) {
        n = jn_char(s->text + at, s->size - at, &c);
        bool masked = s->as.mask && s->as.mask[at];
        escape_char(c, ascii, escape);
        if (escape[0]) jn_add_bytes(b, escape, strlen(escape), masked);
        else jn_add_bytes(b, s->text + at, n, masked);
    }
    jn_add_text(b, "\"");
}

static void new_line(jn_buffer *b, const style *s, int level) {
    if (s->indent.kind == JN_NONE) return;
    jn_add_text(b, "\n");
    for (int i = 0; i < level; i++) jn_add(b, &s->indent);
}

static sn_status value_out(jn_run *x, jn_buffer *b, const jn_value *v, const style *s, int level);

static sn_status key_out(jn_run *x, jn_buffer *b, const jn_value *key, const style *s) {
    if (key->kind == JN_STRING) {
        string_out(b, key, s->ascii);
        return SN_OK;
    }
    if (key->kind != JN_NONE && !jn_is_number(key)) return jn_fail(x, "tojson: a key of type '%s'", jn_kind_name(key));
    jn_add_text(b, "\"");
    SN_TRY(value_out(x, b, key, s, 0));
    jn_add_text(b, "\"");
    return SN_OK;
}

static int by_key(const void *a, const void *b) {
    const jn_value *m = &(*(const jn_pair *const *)a)->key, *n = &(*(const jn_pair *const *)b)->key;
    size_t size = m->size < n->size ? m->size : n->size;
    int c = size ? memcmp(m->text, n->text, size) : 0;
    return c ? c : (m->size > n->size) - (m->size < n->size);
}

static sn_status dict_out(jn_run *x, jn_buffer *b, const jn_dict *d, const style *s, int level) {
    if (!d->count) return jn_add_text(b, "{}"), SN_OK;
    const jn_pair **order = jn_alloc(x, d->count * sizeof *order);
    if (!order) return x->why;
    for (size_t i = 0; i < d->count; i++) {
        order[i] = &d->pairs[i];
        if (s->sort && order[i]->key.kind != JN_STRING) return jn_fail(x, "tojson: sort_keys needs keys that are strings");
    }
    if (s->sort) qsort(order, d->count, sizeof *order, by_key);
    jn_add_text(b, "{");
    for (size_t i = 0; i < d->count; i++) {
        if (i) jn_add_text(b, s->item);
        new_line(b, s, level + 1);
        SN_TRY(key_out(x, b, &order[i]->key, s));
        jn_add_text(b, s->key);
        SN_TRY(value_out(x, b, &order[i]->value, s, level + 1));
    }
    new_line(b, s, level);
    jn_add_text(b, "}");
    return SN_OK;
}

static sn_status list_out(jn_run *x, jn_buffer *b, const jn_list *l, const style *s, int level) {
    if (!l->count) return jn_add_text(b, "[]"), SN_OK;
    jn_add_text(b, "[");
    for (size_t i = 0; i < l->count; i++) {
        if (i) jn_add_text(b, s->item);
        new_line(b, s, level + 1);
        SN_TRY(value_out(x, b, &l->items[i], s, level + 1));
    }
    new_line(b, s, level);
    jn_add_text(b, "]");
    return SN_OK;
}

static sn_status value_out(jn_run *x, jn_buffer *b, const jn_value *v, const style *s, int level) {
    SN_TRY(jn_enter(x));
    switch (v->kind) {
    case JN_NONE: jn_add_text(b, "null"); break;
    case JN_BOOL: jn_add_text(b, v->as.i ? "true" : "false"); break;
    case JN_INT: SN_TRY(jn_repr(x, b, v)); break;
    case JN_FLOAT:
        if (isfinite(v->as.f)) SN_TRY(jn_repr(x, b, v));
        else jn_add_text(b, isnan(v->as.f) ? "NaN" : v->as.f < 0 ? "-Infinity" : "Infinity");
        break;
    case JN_STRING: string_out(b, v, s->ascii); break;
    case JN_LIST:
    case JN_TUPLE: SN_TRY(list_out(x, b, v->as.list, s, level)); break;
    case JN_DICT: SN_TRY(dict_out(x, b, v->as.dict, s, level)); break;
    case JN_UNDEFINED: return jn_fail(x, "tojson: '%.*s' is undefined", (int)v->size, v->text);
    default: return jn_fail(x, "tojson: a value of type '%s'", jn_kind_name(v));
    }
    x->depth--;
    return SN_OK;
}

sn_status jn_to_json(jn_run *x, jn_buffer *b, const jn_value *v, bool ascii, bool sort, const jn_value *indent, const char *item_separator,
                     const char *key_separator) {
    style s = {.ascii = ascii, .sort = sort, .indent = {.kind = JN_NONE}, .key = key_separator ? key_separator : ": "};
    static const char spaces[] = "                                ";
    if (indent && indent->kind == JN_STRING) s.indent = *indent;
    else if (indent && (indent->kind == JN_INT || indent->kind == JN_BOOL)) {
        int64_t n = indent->as.i < 0 ? 0 : indent->as.i;
        if (n >= (int64_t)sizeof spaces) return jn_fail(x, "tojson: an indent of %lld", (long long)n);
        s.indent = (jn_value){.kind = JN_STRING, .text = spaces, .size = (size_t)n};
    } else if (indent && indent->kind != JN_NONE) {
        return jn_fail(x, "tojson: an indent of type '%s'", jn_kind_name(indent));
    }
    s.item = item_separator ? item_separator : s.indent.kind == JN_NONE ? ", " : ",";
    return value_out(x, b, v, &s, 0);
}
