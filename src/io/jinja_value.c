/* Values: making them, comparing them, walking over them. Python's rules. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/jinja.h"

sn_status jn_fail(jn_run *x, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return sn_fail(SN_ERR_FORMAT, "chat template line %d: %s", x->line, text);
}

void *jn_alloc(jn_run *x, size_t bytes) {
    if (bytes > JN_MAX_BYTES || x->bytes > JN_MAX_BYTES - bytes) {
        x->why = jn_fail(x, "the template needs more than %d bytes", JN_MAX_BYTES);
        return NULL;
    }
    x->bytes += bytes + 16;
    void *p = sn_pool_alloc(&x->pool, bytes);
    if (!p) x->why = sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate %zu bytes", bytes);
    return p;
}

sn_status jn_steps(jn_run *x, size_t n) {
    x->steps += n + 1;
    return x->steps > JN_MAX_STEPS ? jn_fail(x, "the template runs for more than %d steps", JN_MAX_STEPS) : SN_OK;
}

sn_status jn_enter(jn_run *x) {
    SN_TRY(jn_steps(x, 0));
    if (x->depth >= JN_MAX_DEPTH) return jn_fail(x, "nested more than %d deep", JN_MAX_DEPTH);
    x->depth++;
    return SN_OK;
}

sn_status jn_undefined_error(jn_run *x, const jn_value *v) {
    return jn_fail(x, "'%.*s' is undefined", (int)(v->size < 200 ? v->size : 200), v->text);
}

jn_value jn_bool(bool b) { return (jn_value){.kind = JN_BOOL, .as.i = b}; }

jn_value jn_int(int64_t i) { return (jn_value){.kind = JN_INT, .as.i = i}; }

jn_value jn_float(double f) { return (jn_value){.kind = JN_FLOAT, .as.f = f}; }

jn_value jn_text(const char *text) { return (jn_value){.kind = JN_STRING, .text = text, .size = strlen(text)}; }

jn_value jn_undefined(const char *name, size_t size) { return (jn_value){.kind = JN_UNDEFINED, .text = name, .size = size}; }

jn_value jn_part(const jn_value *s, size_t begin, size_t end) {
    return (jn_value){.kind = JN_STRING, .text = s->text + begin, .size = end - begin, .as.mask = s->as.mask ? s->as.mask + begin : NULL};
}

sn_status jn_list_new(jn_run *x, jn_kind kind, size_t capacity, jn_value *out) {
    size_t bytes;
    jn_list *l = jn_alloc(x, sizeof *l);
    if (!l) return x->why;
    if (!sn_mul(capacity, sizeof *l->items, &bytes)) return jn_fail(x, "a list is too long");
    if (capacity && !(l->items = jn_alloc(x, bytes))) return x->why;
    l->capacity = capacity;
    *out = (jn_value){.kind = kind, .as.list = l};
    return SN_OK;
}

/* An array in the pool with room for one more: the old one is left behind. */
static sn_status grow(jn_run *x, void **items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return SN_OK;
    size_t want = *capacity ? *capacity * 2 : 8;
    void *p = jn_alloc(x, want * size);
    if (!p) return x->why;
    if (count) memcpy(p, *items, count * size);
    *items = p;
    *capacity = want;
    return SN_OK;
}

sn_status jn_list_add(jn_run *x, jn_list *l, const jn_value *v) {
    SN_TRY(grow(x, (void **)&l->items, l->count, &l->capacity, sizeof *l->items));
    l->items[l->count++] = *v;
    return SN_OK;
}

sn_status jn_dict_new(jn_run *x, jn_kind kind, jn_value *out) {
    jn_dict *d = jn_alloc(x, sizeof *d);
    if (!d) return x->why;
    *out = (jn_value){.kind = kind, .as.dict = d};
    return SN_OK;
}

sn_status jn_dict_add(jn_run *x, jn_dict *d, const jn_value *key, const jn_value *v) {
    SN_TRY(grow(x, (void **)&d->pairs, d->count, &d->capacity, sizeof *d->pairs));
    d->pairs[d->count++] = (jn_pair){*key, *v};
    return SN_OK;
}

sn_status jn_dict_get(jn_run *x, const jn_dict *d, const jn_value *key, const jn_value **out) {
    *out = NULL;
    if (key->kind == JN_LIST || key->kind == JN_DICT) return jn_fail(x, "a %s cannot be a key", jn_kind_name(key));
    SN_TRY(jn_steps(x, d->count / 8));
    for (size_t i = 0; i < d->count && !*out; i++) {
        bool same;
        SN_TRY(jn_equal(x, &d->pairs[i].key, key, &same));
        if (same) *out = &d->pairs[i].value;
    }
    return SN_OK;
}

const jn_value *jn_dict_find(const jn_dict *d, const char *name, size_t size) {
    for (size_t i = 0; i < d->count; i++) {
        const jn_value *k = &d->pairs[i].key;
        if (k->kind == JN_STRING && k->size == size && !memcmp(k->text, name, size)) return &d->pairs[i].value;
    }
    return NULL;
}

sn_status jn_dict_set(jn_run *x, jn_dict *d, const jn_value *key, const jn_value *v) {
    const jn_value *old;
    SN_TRY(jn_dict_get(x, d, key, &old));
    if (!old) return jn_dict_add(x, d, key, v);
    *(jn_value *)old = *v; /* a value of d, which is ours to change */
    return SN_OK;
}

bool jn_true(const jn_value *v) {
    switch (v->kind) {
    case JN_UNDEFINED:
    case JN_NONE: return false;
    case JN_BOOL:
    case JN_INT: return v->as.i != 0;
    case JN_FLOAT: return v->as.f != 0;
    case JN_STRING: return v->size != 0;
    case JN_LIST:
    case JN_TUPLE: return v->as.list->count != 0;
    case JN_DICT: return v->as.dict->count != 0;
    default: return true;
    }
}

bool jn_is_number(const jn_value *v) { return v->kind == JN_INT || v->kind == JN_BOOL || v->kind == JN_FLOAT; }

bool jn_is(const jn_value *s, const char *text) {
    return s->kind == JN_STRING && s->size == strlen(text) && (!s->size || !memcmp(s->text, text, s->size));
}

double jn_number(const jn_value *v) { return v->kind == JN_FLOAT ? v->as.f : (double)v->as.i; }

static sn_status equal_lists(jn_run *x, const jn_list *a, const jn_list *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) SN_TRY(jn_equal(x, &a->items[i], &b->items[i], out));
    return SN_OK;
}

static sn_status equal_dicts(jn_run *x, const jn_dict *a, const jn_dict *b, bool *out) {
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) {
        const jn_value *other;
        SN_TRY(jn_dict_get(x, b, &a->pairs[i].key, &other));
        if (other) SN_TRY(jn_equal(x, &a->pairs[i].value, other, out));
        else *out = false;
    }
    return SN_OK;
}

sn_status jn_equal(jn_run *x, const jn_value *a, const jn_value *b, bool *out) {
    *out = false;
    if (jn_is_number(a) && jn_is_number(b)) {
        *out = a->kind != JN_FLOAT && b->kind != JN_FLOAT ? a->as.i == b->as.i : jn_number(a) == jn_number(b);
        return SN_OK;
    }
    if (a->kind != b->kind) return SN_OK;
    switch (a->kind) {
    case JN_UNDEFINED:
    case JN_NONE: *out = true; return SN_OK;
    case JN_STRING: *out = a->size == b->size && (!a->size || !memcmp(a->text, b->text, a->size)); return jn_steps(x, a->size >> 8);
    case JN_LIST:
    case JN_TUPLE:
    case JN_DICT: break;
    default: *out = a->as.dict == b->as.dict; return SN_OK; /* by identity */
    }
    SN_TRY(jn_enter(x));
    if (a->kind == JN_DICT) SN_TRY(equal_dicts(x, a->as.dict, b->as.dict, out));
    else SN_TRY(equal_lists(x, a->as.list, b->as.list, out));
    x->depth--;
    return SN_OK;
}

sn_status jn_order(jn_run *x, const jn_value *a, const jn_value *b, int *out) {
    if (jn_is_number(a) && jn_is_number(b)) {
        if (a->kind != JN_FLOAT && b->kind != JN_FLOAT) return *out = (a->as.i > b->as.i) - (a->as.i < b->as.i), SN_OK;
        double m = jn_number(a), n = jn_number(b);
        *out = isnan(m) || isnan(n) ? 2 : (m > n) - (m < n);
        return SN_OK;
    }
    if (a->kind == JN_STRING && b->kind == JN_STRING) {
        size_t n = a->size < b->size ? a->size : b->size;
        int c = n ? memcmp(a->text, b->text, n) : 0;
        *out = c ? (c > 0) - (c < 0) : (a->size > b->size) - (a->size < b->size);
        return jn_steps(x, n >> 8);
    }
    if (a->kind == b->kind && (a->kind == JN_LIST || a->kind == JN_TUPLE)) {
        const jn_list *l = a->as.list, *m = b->as.list;
        SN_TRY(jn_enter(x));
        x->depth--;
        for (size_t i = 0; i < l->count && i < m->count; i++) {
            bool same;
            SN_TRY(jn_equal(x, &l->items[i], &m->items[i], &same));
            if (same) continue;
            SN_TRY(jn_enter(x));
            SN_TRY(jn_order(x, &l->items[i], &m->items[i], out));
            x->depth--;
            return SN_OK;
        }
        *out = (l->count > m->count) - (l->count < m->count);
        return SN_OK;
    }
    if (a->kind == JN_UNDEFINED) return jn_undefined_error(x, a);
    if (b->kind == JN_UNDEFINED) return jn_undefined_error(x, b);
    return jn_fail(x, "'%s' and '%s' cannot be ordered", jn_kind_name(a), jn_kind_name(b));
}

sn_status jn_contains(jn_run *x, const jn_value *item, const jn_value *in, bool *out) {
    *out = false;
    if (in->kind == JN_STRING) {
        size_t at;
        if (item->kind == JN_UNDEFINED) return jn_undefined_error(x, item);
        if (item->kind != JN_STRING) return jn_fail(x, "'in' a string needs a string, not '%s'", jn_kind_name(item));
        *out = jn_find(in, item, 0, &at);
        return jn_steps(x, in->size >> 6);
    }
    if (in->kind == JN_DICT) {
        const jn_value *v;
        SN_TRY(jn_dict_get(x, in->as.dict, item, &v));
        *out = v != NULL;
        return SN_OK;
    }
    jn_list *l;
    SN_TRY(jn_iterate(x, in, &l));
    SN_TRY(jn_steps(x, l->count));
    for (size_t i = 0; i < l->count && !*out; i++) SN_TRY(jn_equal(x, &l->items[i], item, out));
    return SN_OK;
}

sn_status jn_iterate(jn_run *x, const jn_value *v, jn_list **out) {
    jn_value made;
    if (v->kind == JN_LIST || v->kind == JN_TUPLE) {
        *out = v->as.list;
        return SN_OK;
    }
    if (v->kind == JN_UNDEFINED) {
        SN_TRY(jn_list_new(x, JN_LIST, 0, &made));
    } else if (v->kind == JN_DICT) {
        SN_TRY(jn_list_new(x, JN_LIST, v->as.dict->count, &made));
        for (size_t i = 0; i < v->as.dict->count; i++) SN_TRY(jn_list_add(x, made.as.list, &v->as.dict->pairs[i].key));
    } else if (v->kind == JN_STRING) {
        SN_TRY(jn_list_new(x, JN_LIST, jn_char_count(v->text, v->size), &made));
        int32_t code;
        for (size_t at = 0, n; at < v->size; at += n) {
            n = jn_char(v->text + at, v->size - at, &code);
            jn_value c = jn_part(v, at, at + n);
            SN_TRY(jn_list_add(x, made.as.list, &c));
        }
    } else {
        return jn_fail(x, "'%s' cannot be iterated", jn_kind_name(v));
    }
    *out = made.as.list;
    return jn_steps(x, made.as.list->count);
}

sn_status jn_length(jn_run *x, const jn_value *v, int64_t *out) {
    switch (v->kind) {
    case JN_UNDEFINED: *out = 0; return SN_OK;
    case JN_STRING: *out = (int64_t)jn_char_count(v->text, v->size); return jn_steps(x, v->size >> 6);
    case JN_LIST:
    case JN_TUPLE: *out = (int64_t)v->as.list->count; return SN_OK;
    case JN_DICT: *out = (int64_t)v->as.dict->count; return SN_OK;
    default: return jn_fail(x, "'%s' has no length", jn_kind_name(v));
    }
}

const char *jn_kind_name(const jn_value *v) {
    static const char *const names[] = {"Undefined", "NoneType", "bool",      "int",   "float",    "str",    "list",
                                        "tuple",     "dict",     "Namespace", "Macro", "function", "method", "LoopContext"};
    return names[v->kind];
}
