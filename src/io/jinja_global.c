/* Functions that every chat template may call, and "%" formatting. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "io/jinja.h"

static sn_status g_range(jn_run *x, const jn_args *args, jn_value *out) {
    int64_t bounds[3] = {0, 0, 1}, count = 0;
    if (!args->count || args->count > 3 || args->keyword_count) return jn_fail(x, "range takes 1 to 3 integers");
    for (size_t i = 0; i < args->count; i++) {
        if (args->items[i].kind != JN_INT && args->items[i].kind != JN_BOOL)
            return jn_fail(x, "range needs integers, not '%s'", jn_kind_name(&args->items[i]));
        bounds[args->count == 1 ? 1 : i] = args->items[i].as.i;
    }
    int64_t from = bounds[0], to = bounds[1], step = bounds[2], distance;
    if (!step) return jn_fail(x, "range with a step of 0");
    if (__builtin_sub_overflow(to, from, &distance) || step == INT64_MIN) return jn_fail(x, "range is too long");
    if (step > 0 ? distance > 0 : distance < 0) count = (step > 0 ? distance - 1 : -(distance + 1)) / (step > 0 ? step : -step) + 1;
    if (count > JN_MAX_RANGE) return jn_fail(x, "range is longer than %d", JN_MAX_RANGE);
    SN_TRY(jn_steps(x, (size_t)count));
    SN_TRY(jn_list_new(x, JN_LIST, (size_t)count, out));
    for (int64_t i = 0; i < count; i++) {
        jn_value v = jn_int(from + i * step);
        SN_TRY(jn_list_add(x, out->as.list, &v));
    }
    return SN_OK;
}

static sn_status make_dict(jn_run *x, jn_kind kind, const jn_args *args, jn_value *out) {
    SN_TRY(jn_dict_new(x, kind, out));
    if (args->count > 1) return jn_fail(x, "dict and namespace take one value and named ones");
    if (args->count && args->items[0].kind == JN_DICT) {
        const jn_dict *d = args->items[0].as.dict;
        for (size_t i = 0; i < d->count; i++) SN_TRY(jn_dict_set(x, out->as.dict, &d->pairs[i].key, &d->pairs[i].value));
    } else if (args->count) {
        jn_list *items, *pair;
        SN_TRY(jn_iterate(x, &args->items[0], &items));
        for (size_t i = 0; i < items->count; i++) {
            SN_TRY(jn_iterate(x, &items->items[i], &pair));
            if (pair->count != 2) return jn_fail(x, "dict needs pairs");
            SN_TRY(jn_dict_set(x, out->as.dict, &pair->items[0], &pair->items[1]));
        }
    }
    for (size_t i = 0; i < args->keyword_count; i++) SN_TRY(jn_dict_set(x, out->as.dict, &args->keywords[i].key, &args->keywords[i].value));
    return SN_OK;
}
static sn_status g_dict(jn_run *x, const jn_args *args, jn_value *out) { return make_dict(x, JN_DICT, args, out); }
static sn_status g_namespace(jn_run *x, const jn_args *args, jn_value *out) { return make_dict(x, JN_NAMESPACE, args, out); }

static sn_status g_raise_exception(jn_run *x, const jn_args *args, jn_value *out) {
    jn_value s;
    (void)out;
    if (args->count != 1) return jn_fail(x, "raise_exception takes one message");
    SN_TRY(jn_to_string(x, &args->items[0], &s));
    return jn_fail(x, "the template refuses: %.*s", (int)(s.size < 400 ? s.size : 400), s.text);
}

static sn_status g_strftime_now(jn_run *x, const jn_args *args, jn_value *out) {
    char format[128], text[512];
    time_t now = (time_t)x->now;
    struct tm local;
    if (args->count != 1 || args->items[0].kind != JN_STRING || args->items[0].size >= sizeof format - 1)
        return jn_fail(x, "strftime_now takes one short format");
    size_t n = args->items[0].size;
    memcpy(format, args->items[0].text, n);
    format[n] = 'x'; /* so that an empty result is not taken for a result that does not fit */
    format[n + 1] = 0;
    if (!localtime_r(&now, &local)) return jn_fail(x, "strftime_now: the time has no date");
    size_t size = strftime(text, sizeof text, format, &local);
    if (!size) return jn_fail(x, "strftime_now: the date is too long");
    jn_buffer b = {0};
    jn_add_bytes(&b, text, size - 1, false);
    return jn_buffer_value(x, &b, out);
}

static const struct entry {
    const char *name;
    sn_status (*fn)(jn_run *x, const jn_args *args, jn_value *out);
} globals[] = {
    {"range", g_range},
    {"dict", g_dict},
    {"namespace", g_namespace},
    {"raise_exception", g_raise_exception},
    {"strftime_now", g_strftime_now},
};

bool jn_find_global(const char *name, size_t size, jn_value *out) {
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        if (strlen(globals[i].name) != size || memcmp(globals[i].name, name, size)) continue;
        *out = (jn_value){.kind = JN_GLOBAL, .text = globals[i].name, .size = size, .as.i = (int64_t)i};
        return true;
    }
    return false;
}

sn_status jn_call_global(jn_run *x, const jn_value *f, const jn_args *args, jn_value *out) { return globals[f->as.i].fn(x, args, out); }

/* One conversion of "%": s, r, d, i, f with a precision, x. */
static sn_status convert(jn_run *x, jn_buffer *b, char how, int precision, const jn_value *v) {
    char text[400];
    switch (how) {
    case 's': return jn_print(x, b, v);
    case 'r': return jn_repr(x, b, v);
    case 'd':
    case 'i':
    case 'x':
        if (!jn_is_number(v) || (v->kind == JN_FLOAT && !(v->as.f > -9e18 && v->as.f < 9e18)))
            return jn_fail(x, "%%%c needs an integer", how);
        snprintf(text, sizeof text, how == 'x' ? "%llx" : "%lld", (long long)(v->kind == JN_FLOAT ? (int64_t)v->as.f : v->as.i));
        break;
    case 'f':
        if (!jn_is_number(v)) return jn_fail(x, "%%f needs a number");
        snprintf(text, sizeof text, "%.*f", precision < 0 ? 6 : precision, jn_number(v));
        break;
    default: return jn_fail(x, "%%%c is not supported", how);
    }
    jn_add_text(b, text);
    return SN_OK;
}

static sn_status format_into(jn_run *x, jn_buffer *b, const jn_value *format, const jn_args *args) {
    size_t next = 0;
    for (size_t at = 0; at < format->size; at++) {
        jn_value one = jn_part(format, at, at + 1);
        if (format->text[at] != '%' || (at + 1 < format->size && format->text[at + 1] == '%')) {
            jn_add(b, &one);
            at += format->text[at] == '%';
            continue;
        }
        int precision = -1;
        at++;
        if (at + 1 < format->size && format->text[at] == '.' && format->text[at + 1] >= '0' && format->text[at + 1] <= '9') {
            precision = format->text[at + 1] - '0';
            at += 2;
        }
        if (at >= format->size) return jn_fail(x, "a format ends in '%%'");
        if (next >= args->count) return jn_fail(x, "a format has more conversions than values");
        SN_TRY(convert(x, b, format->text[at], precision, &args->items[next++]));
    }
    return next == args->count ? SN_OK : jn_fail(x, "a format has fewer conversions than values");
}

sn_status jn_format(jn_run *x, const jn_value *format, const jn_args *args, jn_value *out) {
    jn_buffer b = {0};
    SN_TRY(jn_steps(x, format->size >> 4));
    sn_status s = format_into(x, &b, format, args);
    if (s == SN_OK) return jn_buffer_value(x, &b, out);
    jn_buffer_free(&b);
    return s;
}
