#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "io/options_store.h"

static const char *const truths[] = {"true", "yes", "on", "1"}, *const falsehoods[] = {"false", "no", "off", "0"};

void sn_option_value_free(sn_option_value *v) {
    for (size_t i = 0; i < v->count; i++) sn_free(v->items[i]);
    sn_free(v->items);
    sn_free(v->text);
    *v = (sn_option_value){0};
}

void sn_option_wanted(const sn_option *o, sn_str *out) {
    switch (o->kind) {
    case SN_OPTION_FLAG: sn_str_add(out, "true or false"); break;
    case SN_OPTION_SWITCH: sn_str_add(out, "on or off"); break;
    case SN_OPTION_INT: sn_str_add(out, "an integer"); break;
    case SN_OPTION_FLOAT: sn_str_add(out, "a number"); break;
    case SN_OPTION_STRING: sn_str_add(out, "a text"); break;
    case SN_OPTION_LIST: sn_str_add(out, "texts with commas between them"); break;
    case SN_OPTION_CHOICE: sn_str_printf(out, "one of %s", o->choices); break;
    case SN_OPTION_BYTES: sn_str_add(out, "a size such as 8GiB or 500MB"); break;
    case SN_OPTION_BUDGET: sn_str_add(out, "a size such as 8GiB, or device=24GiB,host=64GiB,disk=500GiB"); break;
    }
    if (o->has_least && o->has_most) sn_str_printf(out, " from %.10g to %.10g", o->least, o->most);
    else if (o->has_least) sn_str_printf(out, " of at least %.10g", o->least);
    else if (o->has_most) sn_str_printf(out, " of at most %.10g", o->most);
}

static bool one_of(const char *text, const char *const words[4]) {
    for (int i = 0; i < 4; i++)
        if (!strcasecmp(text, words[i])) return true;
    return false;
}

static bool in_range(const sn_option *o, double v) { return !(o->has_least && v < o->least) && !(o->has_most && v > o->most); }

static bool parse_int(const sn_option *o, const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    *out = v;
    return end != text && !*end && !errno && in_range(o, (double)v);
}

static bool parse_float(const sn_option *o, const char *text, double *out) {
    char *end;
    if (strspn(text, "0123456789+-.eE") != strlen(text)) return false; /* no nan, inf, hexadecimal */
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out) && in_range(o, *out);
}

/* Replaces a further name of a choice by the choice; *length: of the text. */
static bool parse_choice(const sn_option *o, const char **text, size_t *length) {
    size_t n = *length = strlen(*text);
    for (const char *c = o->choices; *c;) {
        size_t m = strcspn(c, ",");
        if (m == n && !memcmp(c, *text, n)) return true;
        c += m + (c[m] == ',');
    }
    for (const char *c = o->also ? o->also : ""; *c;) {
        size_t name = strcspn(c, "="), m = strcspn(c, ",");
        if (name == n && !memcmp(c, *text, n)) {
            *text = c + name + 1;
            *length = m - name - 1;
            return true;
        }
        c += m + (c[m] == ',');
    }
    return false;
}

static bool parse_budget(const char *text, sn_budget *b) {
    *b = (sn_budget){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    if (!strchr(text, '=')) return sn_bytes_parse(text, &b->bare);
    for (;;) {
        char size[40];
        size_t n = strcspn(text, ","), name = strcspn(text, "=");
        if (name >= n || n - name - 1 >= sizeof size) return false;
        memcpy(size, text + name + 1, n - name - 1);
        size[n - name - 1] = 0;
        uint64_t *place = name == 6 && !memcmp(text, "device", 6) ? &b->device
                          : name == 4 && !memcmp(text, "host", 4) ? &b->host
                          : name == 4 && !memcmp(text, "disk", 4) ? &b->disk
                                                                  : NULL;
        if (!place || *place != UINT64_MAX || !sn_bytes_parse(size, place)) return false;
        text += n;
        if (!*text++) return true;
    }
}

static sn_status add_items(sn_option_value *v, const char *text) {
    while (*text) {
        size_t n = strcspn(text, ",");
        if (n) {
            SN_TRY(SN_GROW(v->items, v->count, v->capacity));
            char *item = sn_strndup(text, n);
            if (!item) return sn_fail(SN_ERR_NO_MEMORY, "cannot keep an item");
            v->items[v->count++] = item;
        }
        text += n + (text[n] == ',');
    }
    return SN_OK;
}

static sn_status refuse(const sn_option *o, const char *text, const char *where) {
    sn_str wanted = {0};
    sn_option_wanted(o, &wanted);
    sn_status s = sn_fail(SN_ERR_USAGE, "%s: '%s' is not %s", where, text, wanted.data ? wanted.data : "what was wanted");
    sn_str_free(&wanted);
    return s;
}

sn_status sn_option_parse(const sn_option *o, const char *text, bool append, const char *where, sn_option_value *v) {
    sn_option_value n = {.set = true, .budget = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    size_t length = strlen(text);
    bool good = true, sum = append && o->kind == SN_OPTION_LIST && v->set;
    switch (o->kind) {
    case SN_OPTION_FLAG:
    case SN_OPTION_SWITCH:
        n.truth = one_of(text, truths);
        good = n.truth || one_of(text, falsehoods);
        break;
    case SN_OPTION_INT: good = parse_int(o, text, &n.integer); break;
    case SN_OPTION_FLOAT: good = parse_float(o, text, &n.number); break;
    case SN_OPTION_CHOICE: good = parse_choice(o, &text, &length); break;
    case SN_OPTION_BYTES: good = sn_bytes_parse(text, &n.budget.bare); break;
    case SN_OPTION_BUDGET: good = parse_budget(text, &n.budget); break;
    case SN_OPTION_STRING:
    case SN_OPTION_LIST: break;
    }
    if (!good) return refuse(o, text, where);
    sn_str joined = {0};
    if (sum && *v->text) sn_str_printf(&joined, "%s,", v->text);
    sn_str_printf(&joined, "%.*s", (int)length, text);
    sn_status s = joined.failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: cannot keep the value", where) : SN_OK;
    n.text = joined.data;
    if (s == SN_OK && o->kind == SN_OPTION_LIST) s = add_items(&n, n.text);
    if (s != SN_OK) sn_option_value_free(&n);
    else {
        sn_option_value_free(v);
        *v = n;
    }
    return s;
}
