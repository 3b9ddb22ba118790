/* Filters on one value. Those that walk over sequences are in jinja_sequence.c.
 * A filter's parameters are named in its table entry; "*" means that it reads its arguments itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/jinja.h"

typedef sn_status (*filter_fn)(jn_run *x, const jn_value *v, const jn_args *args, const jn_value *p[JN_PARAMS], jn_value *out);

sn_status jn_bind(jn_run *x, const char *what, const char *params, const jn_args *args, const jn_value *p[JN_PARAMS]) {
    size_t used = 0, i = 0;
    for (size_t k = 0; k < JN_PARAMS; k++) p[k] = NULL;
    if (*params == '*') return SN_OK;
    for (const char *name = params; *name; i++) {
        size_t n = strcspn(name, ",");
        if (i < args->count) p[i] = &args->items[i];
        for (size_t k = 0; k < args->keyword_count; k++) {
            const jn_value *key = &args->keywords[k].key;
            if (key->size != n || memcmp(key->text, name, n)) continue;
            if (p[i]) return jn_fail(x, "%s got '%.*s' twice", what, (int)n, name);
            p[i] = &args->keywords[k].value;
            used++;
        }
        name += n + (name[n] == ',');
    }
    if (args->count > i) return jn_fail(x, "%s takes at most %zu arguments, %zu given", what, i, args->count);
    if (used != args->keyword_count) return jn_fail(x, "%s got an argument with an unknown name", what);
    return SN_OK;
}

#define FILTER(name) static sn_status name(jn_run *x, const jn_value *v, const jn_args *args, const jn_value *p[JN_PARAMS], jn_value *out)
#define UNUSED (void)args, (void)p

FILTER(f_tojson) { /* transformers': ensure_ascii, indent, separators, sort_keys */
    char item[64], key[64];
    bool separators = p[2] && p[2]->kind != JN_NONE;
    (void)args;
    if (separators) {
        const jn_list *l = p[2]->kind == JN_LIST || p[2]->kind == JN_TUPLE ? p[2]->as.list : NULL;
        if (!l || l->count != 2 || l->items[0].kind != JN_STRING || l->items[1].kind != JN_STRING || l->items[0].size >= sizeof item ||
            l->items[1].size >= sizeof key)
            return jn_fail(x, "tojson: separators must be two short strings");
        memcpy(item, l->items[0].text, l->items[0].size);
        memcpy(key, l->items[1].text, l->items[1].size);
        item[l->items[0].size] = key[l->items[1].size] = 0;
    }
    jn_buffer b = {0};
    sn_status s =
        jn_to_json(x, &b, v, p[0] && jn_true(p[0]), p[3] && jn_true(p[3]), p[1], separators ? item : NULL, separators ? key : NULL);
    if (s == SN_OK) return jn_buffer_value(x, &b, out);
    jn_buffer_free(&b);
    return s;
}

FILTER(f_trim) {
    (void)args;
    jn_value s;
    if (p[0] && p[0]->kind != JN_NONE && p[0]->kind != JN_STRING) return jn_fail(x, "trim needs a string of characters");
    SN_TRY(jn_to_string(x, v, &s));
    SN_TRY(jn_steps(x, s.size >> 4));
    *out = jn_strip(&s, p[0] && p[0]->kind == JN_STRING ? p[0] : NULL, 3);
    return SN_OK;
}

FILTER(f_length) {
    UNUSED;
    int64_t n;
    SN_TRY(jn_length(x, v, &n));
    *out = jn_int(n);
    return SN_OK;
}

FILTER(f_default) {
    (void)args, (void)x;
    bool use = v->kind == JN_UNDEFINED || (p[1] && jn_true(p[1]) && !jn_true(v));
    *out = !use ? *v : p[0] ? *p[0] : jn_text("");
    return SN_OK;
}

FILTER(f_string) {
    UNUSED;
    return jn_to_string(x, v, out);
}

FILTER(f_safe) { /* nothing is escaped here, so nothing needs to be marked as safe */
    UNUSED;
    return jn_to_string(x, v, out);
}

static sn_status change(jn_run *x, const jn_value *v, char how, jn_value *out) {
    jn_value s;
    SN_TRY(jn_to_string(x, v, &s));
    return jn_change_case(x, &s, how, out);
}
FILTER(f_lower) { return UNUSED, change(x, v, 'l', out); }
FILTER(f_upper) { return UNUSED, change(x, v, 'u', out); }
FILTER(f_capitalize) { return UNUSED, change(x, v, 'c', out); }

FILTER(f_title) { /* a capital after white space, -, (, {, [ and < */
    UNUSED;
    jn_value s, part;
    jn_buffer b = {0};
    SN_TRY(jn_to_string(x, v, &s));
    for (size_t at = 0, end; at < s.size; at = end) {
        bool separator = strchr("-({[< \t\r\n\f\v", s.text[at]) && s.text[at];
        for (end = at + 1; end < s.size && (strchr("-({[< \t\r\n\f\v", s.text[end]) && s.text[end]) == separator;) end++;
        part = jn_part(&s, at, end);
        sn_status status = separator ? SN_OK : jn_change_case(x, &part, 'c', &part);
        if (status != SN_OK) return jn_buffer_free(&b), status;
        jn_add(&b, &part);
    }
    return jn_buffer_value(x, &b, out);
}

FILTER(f_replace) {
    (void)args;
    jn_value s, old, new;
    if (!p[0] || !p[1]) return jn_fail(x, "replace needs what to replace and by what");
    SN_TRY(jn_to_string(x, v, &s));
    SN_TRY(jn_to_string(x, p[0], &old));
    SN_TRY(jn_to_string(x, p[1], &new));
    return jn_replace(x, &s, &old, &new, p[2] && p[2]->kind == JN_INT ? p[2]->as.i : -1, out);
}

FILTER(f_indent) {
    (void)args;
    jn_value s, width = jn_text("    "), one = jn_text(" ");
    bool first = p[1] && jn_true(p[1]), blank = p[2] && jn_true(p[2]);
    if (p[0] && p[0]->kind == JN_STRING) width = *p[0];
    else if (p[0]) SN_TRY(jn_binary(x, "*", &one, p[0], &width));
    if (v->kind == JN_UNDEFINED) return jn_undefined_error(x, v);
    if (v->kind != JN_STRING) return jn_fail(x, "indent needs a string, not '%s'", jn_kind_name(v));
    s = *v;
    jn_buffer b = {0};
    if (first) jn_add(&b, &width);
    for (size_t at = 0, end, next; at <= s.size; at = next) { /* the lines of s and one more line end, joined by \n */
        end = jn_line_end(&s, at, &next);
        if (next == s.size && end + 1 == next && s.text[end] == '\r') next++; /* the added \n belongs to this \r */
        if (end == s.size) next = s.size + 1;
        if (at) jn_add_text(&b, "\n");
        if (at && (blank || end > at)) jn_add(&b, &width);
        jn_value line = jn_part(&s, at, end);
        jn_add(&b, &line);
    }
    return jn_buffer_value(x, &b, out);
}

FILTER(f_int) {
    (void)args;
    jn_value zero = jn_int(0);
    int64_t base = p[1] && p[1]->kind == JN_INT ? p[1]->as.i : 10;
    *out = p[0] ? *p[0] : zero;
    if (v->kind == JN_INT || v->kind == JN_BOOL) *out = jn_int(v->as.i);
    else if (v->kind == JN_FLOAT && fabs(v->as.f) < 9e18) *out = jn_int((int64_t)v->as.f);
    else if (v->kind == JN_STRING) {
        jn_value s = jn_strip(v, NULL, 3);
        char text[64], *end;
        if (!s.size || s.size >= sizeof text || base < 2 || base > 36) return SN_OK;
        memcpy(text, s.text, s.size);
        text[s.size] = 0;
        long long i = strtoll(text, &end, (int)base);
        if (!*end) return *out = jn_int(i), SN_OK;
        double f = strtod(text, &end);
        if (!*end && base == 10 && fabs(f) < 9e18) *out = jn_int((int64_t)f);
    }
    return jn_steps(x, 0);
}

FILTER(f_float) {
    (void)args;
    *out = p[0] ? *p[0] : jn_float(0);
    if (jn_is_number(v)) *out = jn_float(jn_number(v));
    else if (v->kind == JN_STRING) {
        jn_value s = jn_strip(v, NULL, 3);
        char text[64], *end;
        if (!s.size || s.size >= sizeof text) return SN_OK;
        memcpy(text, s.text, s.size);
        text[s.size] = 0;
        double f = strtod(text, &end);
        if (!*end) *out = jn_float(f);
    }
    return jn_steps(x, 0);
}

FILTER(f_abs) {
    UNUSED;
    if (!jn_is_number(v)) return jn_fail(x, "abs needs a number, not '%s'", jn_kind_name(v));
    jn_value zero = jn_int(0);
    if (v->kind == JN_FLOAT) return *out = jn_float(fabs(v->as.f)), SN_OK;
    return v->as.i < 0 ? jn_binary(x, "-", &zero, v, out) : (*out = jn_int(v->as.i), SN_OK);
}

FILTER(f_round) {
    (void)args;
    int64_t digits = p[0] && p[0]->kind == JN_INT ? p[0]->as.i : 0;
    if (!jn_is_number(v)) return jn_fail(x, "round needs a number, not '%s'", jn_kind_name(v));
    if (digits < -300 || digits > 300) return jn_fail(x, "round to %lld digits", (long long)digits);
    double scale = pow(10, (double)digits), f = jn_number(v);
    if (!p[1] || jn_is(p[1], "common")) *out = jn_float(nearbyint(f * scale) / scale);
    else if (jn_is(p[1], "ceil")) *out = jn_float(ceil(f * scale) / scale);
    else if (jn_is(p[1], "floor")) *out = jn_float(floor(f * scale) / scale);
    else return jn_fail(x, "round: the method must be common, ceil or floor");
    return SN_OK;
}

FILTER(f_escape) {
    UNUSED;
    jn_value s;
    SN_TRY(jn_to_string(x, v, &s));
    static const char *const from[] = {"&", "<", ">", "'", "\""}, *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    for (int i = 0; i < 5; i++) {
        jn_value old = jn_text(from[i]), new = jn_text(to[i]);
        SN_TRY(jn_replace(x, &s, &old, &new, -1, &s));
    }
    *out = s;
    return SN_OK;
}

FILTER(f_wordcount) {
    UNUSED;
    jn_value s;
    int64_t count = 0;
    bool inside = false;
    int32_t c;
    SN_TRY(jn_to_string(x, v, &s));
    for (size_t at = 0, n; at < s.size; at += n) {
        n = jn_char(s.text + at, s.size - at, &c);
        count += !inside && !jn_is_space(c);
        inside = !jn_is_space(c);
    }
    *out = jn_int(count);
    return jn_steps(x, s.size >> 4);
}

FILTER(f_format) {
    (void)p;
    jn_value s;
    SN_TRY(jn_to_string(x, v, &s));
    return jn_format(x, &s, args, out);
}

FILTER(f_attr) {
    (void)args;
    if (!p[0] || p[0]->kind != JN_STRING) return jn_fail(x, "attr needs a name");
    if (v->kind == JN_DICT) return *out = jn_undefined(p[0]->text, p[0]->size), SN_OK; /* attributes only, no elements */
    return jn_attribute(x, v, p[0], out);
}

static const struct entry {
    const char *name, *params;
    filter_fn fn;
} filters[] = {
    {"tojson", "ensure_ascii,indent,separators,sort_keys", f_tojson},
    {"trim", "chars", f_trim},
    {"length", "", f_length},
    {"count", "", f_length},
    {"default", "default_value,boolean", f_default},
    {"d", "default_value,boolean", f_default},
    {"string", "", f_string},
    {"safe", "", f_safe},
    {"lower", "", f_lower},
    {"upper", "", f_upper},
    {"capitalize", "", f_capitalize},
    {"title", "", f_title},
    {"replace", "old,new,count", f_replace},
    {"indent", "width,first,blank", f_indent},
    {"int", "default,base", f_int},
    {"float", "default", f_float},
    {"abs", "", f_abs},
    {"round", "precision,method", f_round},
    {"escape", "", f_escape},
    {"e", "", f_escape},
    {"wordcount", "", f_wordcount},
    {"format", "*", f_format},
    {"attr", "name", f_attr},
};

static const struct entry *find_filter(const char *name, size_t size) {
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        if (strlen(filters[i].name) == size && !memcmp(filters[i].name, name, size)) return &filters[i];
    }
    return NULL;
}

bool jn_has_filter(const char *name, size_t size) { return find_filter(name, size) || jn_has_sequence_filter(name, size); }

sn_status jn_filter(jn_run *x, const char *name, size_t size, const jn_value *v, const jn_args *args, jn_value *out) {
    const jn_value *p[JN_PARAMS];
    const struct entry *e = find_filter(name, size);
    bool found;
    if (e) {
        SN_TRY(jn_bind(x, e->name, e->params, args, p));
        return e->fn(x, v, args, p, out);
    }
    SN_TRY(jn_sequence_filter(x, name, size, v, args, &found, out));
    return found ? SN_OK : jn_fail(x, "unknown filter '%.*s'", (int)(size < 60 ? size : 60), name);
}
