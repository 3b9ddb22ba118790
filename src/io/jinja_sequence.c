/* Filters that walk over sequences. Jinja's give generators; ours give lists. */
#include <string.h>

#include "io/jinja.h"

typedef sn_status (*sequence_fn)(jn_run *x, const jn_value *v, const jn_args *args, const jn_value *p[JN_PARAMS], jn_value *out);
#define FILTER(name) static sn_status name(jn_run *x, const jn_value *v, const jn_args *args, const jn_value *p[JN_PARAMS], jn_value *out)
#define UNUSED (void)args, (void)p

/* item[path], where path may be "a.b" or an index. */
static sn_status attribute_of(jn_run *x, const jn_value *item, const jn_value *path, jn_value *out) {
    if (path->kind != JN_STRING) return jn_item(x, item, path, out);
    jn_value at = *item;
    for (size_t begin = 0, end; begin <= path->size; begin = end + 1) {
        for (end = begin; end < path->size && path->text[end] != '.';) end++;
        jn_value key = jn_part(path, begin, end);
        int64_t index = 0;
        bool digits = key.size > 0 && key.size < 10;
        for (size_t i = 0; i < key.size && digits; i++) {
            digits = key.text[i] >= '0' && key.text[i] <= '9';
            index = index * 10 + key.text[i] - '0';
        }
        if (digits) key = jn_int(index);
        SN_TRY(jn_item(x, &at, &key, &at));
    }
    *out = at;
    return SN_OK;
}

static sn_status walk(jn_run *x, const jn_value *v, jn_list **items, jn_value *out) {
    SN_TRY(jn_iterate(x, v, items));
    SN_TRY(jn_steps(x, (*items)->count));
    return jn_list_new(x, JN_LIST, 0, out);
}

FILTER(f_list) {
    UNUSED;
    jn_list *items;
    SN_TRY(walk(x, v, &items, out));
    for (size_t i = 0; i < items->count; i++) SN_TRY(jn_list_add(x, out->as.list, &items->items[i]));
    return SN_OK;
}

FILTER(f_items) {
    UNUSED;
    if (v->kind == JN_UNDEFINED) return jn_list_new(x, JN_LIST, 0, out);
    if (v->kind != JN_DICT) return jn_fail(x, "items needs a mapping, not '%s'", jn_kind_name(v));
    SN_TRY(jn_list_new(x, JN_LIST, v->as.dict->count, out));
    for (size_t i = 0; i < v->as.dict->count; i++) {
        jn_value pair;
        SN_TRY(jn_list_new(x, JN_TUPLE, 2, &pair));
        SN_TRY(jn_list_add(x, pair.as.list, &v->as.dict->pairs[i].key));
        SN_TRY(jn_list_add(x, pair.as.list, &v->as.dict->pairs[i].value));
        SN_TRY(jn_list_add(x, out->as.list, &pair));
    }
    return SN_OK;
}

FILTER(f_join) {
    (void)args;
    jn_list *items;
    jn_value separator = jn_text(""), item;
    jn_buffer b = {0};
    SN_TRY(jn_iterate(x, v, &items));
    SN_TRY(jn_steps(x, items->count));
    if (p[0]) SN_TRY(jn_to_string(x, p[0], &separator));
    sn_status s = SN_OK;
    for (size_t i = 0; i < items->count && s == SN_OK; i++) {
        item = items->items[i];
        if (p[1]) s = attribute_of(x, &item, p[1], &item);
        if (i) jn_add(&b, &separator);
        if (s == SN_OK) s = jn_print(x, &b, &item);
    }
    if (s == SN_OK) return jn_buffer_value(x, &b, out);
    jn_buffer_free(&b);
    return s;
}

FILTER(f_first) {
    UNUSED;
    jn_list *items;
    SN_TRY(jn_iterate(x, v, &items));
    *out = items->count ? items->items[0] : jn_undefined("the first of nothing", 20);
    return SN_OK;
}

FILTER(f_last) {
    UNUSED;
    jn_list *items;
    SN_TRY(jn_iterate(x, v, &items));
    *out = items->count ? items->items[items->count - 1] : jn_undefined("the last of nothing", 19);
    return SN_OK;
}

FILTER(f_reverse) {
    UNUSED;
    jn_list *items;
    if (v->kind == JN_STRING) return jn_slice(x, v, NULL, NULL, &(jn_value){.kind = JN_INT, .as.i = -1}, out);
    SN_TRY(walk(x, v, &items, out));
    for (size_t i = items->count; i-- > 0;) SN_TRY(jn_list_add(x, out->as.list, &items->items[i]));
    return SN_OK;
}

/* What an element is compared by: an attribute of it, in lower case unless case counts. */
static sn_status sort_key(jn_run *x, const jn_value *item, const jn_value *attribute, bool case_counts, jn_value *out) {
    *out = *item;
    if (attribute && attribute->kind != JN_NONE) SN_TRY(attribute_of(x, item, attribute, out));
    return out->kind == JN_STRING && !case_counts ? jn_change_case(x, out, 'l', out) : SN_OK;
}

/* Sorts pairs { key: compared by, value: element } stably: merges runs of width 1, 2, 4, ... between two arrays. */
static sn_status merge_sort(jn_run *x, jn_pair *a, size_t n, bool reverse) {
    jn_pair *b = n ? jn_alloc(x, n * sizeof *b) : NULL, *from = a, *to = b;
    if (n && !b) return x->why;
    for (size_t width = 1; width < n; width *= 2) {
        SN_TRY(jn_steps(x, n));
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t middle = start + width < n ? start + width : n, end = start + 2 * width < n ? start + 2 * width : n;
            for (size_t i = start, j = middle, k = start; k < end; k++) {
                int order = -1;
                if (i < middle && j < end)
                    SN_TRY(reverse ? jn_order(x, &from[j].key, &from[i].key, &order) : jn_order(x, &from[i].key, &from[j].key, &order));
                to[k] = i < middle && (j >= end || order != 1) ? from[i++] : from[j++];
            }
        }
        jn_pair *swap = from;
        from = to;
        to = swap;
    }
    if (from != a) memcpy(a, from, n * sizeof *a);
    return SN_OK;
}

static sn_status sort_by(jn_run *x, const jn_list *items, const jn_value *attribute, bool case_counts, bool reverse, jn_value *out) {
    jn_pair *pairs = items->count ? jn_alloc(x, items->count * sizeof *pairs) : NULL;
    if (items->count && !pairs) return x->why;
    for (size_t i = 0; i < items->count; i++) {
        pairs[i].value = items->items[i];
        SN_TRY(sort_key(x, &items->items[i], attribute, case_counts, &pairs[i].key));
    }
    SN_TRY(merge_sort(x, pairs, items->count, reverse));
    SN_TRY(jn_list_new(x, JN_LIST, items->count, out));
    for (size_t i = 0; i < items->count; i++) SN_TRY(jn_list_add(x, out->as.list, &pairs[i].value));
    return SN_OK;
}

FILTER(f_sort) {
    (void)args;
    jn_list *items;
    SN_TRY(jn_iterate(x, v, &items));
    return sort_by(x, items, p[2], p[1] && jn_true(p[1]), p[0] && jn_true(p[0]), out);
}

FILTER(f_dictsort) {
    jn_value pairs, zero = jn_int(0), one = jn_int(1);
    bool by_value = p[1] && jn_is(p[1], "value");
    if (v->kind != JN_DICT) return jn_fail(x, "dictsort needs a mapping, not '%s'", jn_kind_name(v));
    SN_TRY(f_items(x, v, args, p, &pairs));
    return sort_by(x, pairs.as.list, by_value ? &one : &zero, p[0] && jn_true(p[0]), p[2] && jn_true(p[2]), out);
}

FILTER(f_unique) {
    (void)args;
    jn_list *items;
    jn_value seen, key;
    SN_TRY(walk(x, v, &items, out));
    SN_TRY(jn_list_new(x, JN_LIST, 0, &seen));
    for (size_t i = 0; i < items->count; i++) {
        bool old;
        SN_TRY(sort_key(x, &items->items[i], p[1], p[0] && jn_true(p[0]), &key));
        SN_TRY(jn_contains(x, &key, &seen, &old));
        if (old) continue;
        SN_TRY(jn_list_add(x, seen.as.list, &key));
        SN_TRY(jn_list_add(x, out->as.list, &items->items[i]));
    }
    return SN_OK;
}

static sn_status extreme(jn_run *x, const jn_value *v, const jn_value *p[JN_PARAMS], int sign, jn_value *out) {
    jn_list *items;
    jn_value best = {0}, key;
    int order;
    SN_TRY(jn_iterate(x, v, &items));
    SN_TRY(jn_steps(x, items->count));
    *out = jn_undefined("the extreme of nothing", 22);
    for (size_t i = 0; i < items->count; i++) {
        SN_TRY(sort_key(x, &items->items[i], p[1], p[0] && jn_true(p[0]), &key));
        order = sign;
        if (i) SN_TRY(jn_order(x, &key, &best, &order));
        if (order != sign) continue;
        best = key;
        *out = items->items[i];
    }
    return SN_OK;
}
FILTER(f_min) { return (void)args, extreme(x, v, p, -1, out); }
FILTER(f_max) { return (void)args, extreme(x, v, p, 1, out); }

FILTER(f_sum) {
    (void)args;
    jn_list *items;
    jn_value item;
    SN_TRY(jn_iterate(x, v, &items));
    SN_TRY(jn_steps(x, items->count));
    *out = p[1] ? *p[1] : jn_int(0);
    for (size_t i = 0; i < items->count; i++) {
        item = items->items[i];
        if (p[0] && p[0]->kind != JN_NONE) SN_TRY(attribute_of(x, &item, p[0], &item));
        SN_TRY(jn_binary(x, "+", out, &item, out));
    }
    return SN_OK;
}

FILTER(f_batch) {
    (void)args;
    jn_list *items;
    jn_value row = {0};
    if (!p[0] || p[0]->kind != JN_INT || p[0]->as.i < 1) return jn_fail(x, "batch needs a count of at least 1");
    SN_TRY(walk(x, v, &items, out));
    for (size_t i = 0; i < items->count; i++) {
        if (i % (size_t)p[0]->as.i == 0) {
            SN_TRY(jn_list_new(x, JN_LIST, 0, &row));
            SN_TRY(jn_list_add(x, out->as.list, &row));
        }
        SN_TRY(jn_list_add(x, row.as.list, &items->items[i]));
    }
    if (!row.as.list || !p[1]) return SN_OK;
    SN_TRY(jn_steps(x, (size_t)p[0]->as.i));
    while ((int64_t)row.as.list->count < p[0]->as.i) SN_TRY(jn_list_add(x, row.as.list, p[1]));
    return SN_OK;
}

static const jn_value *keyword(const jn_args *args, const char *name) {
    for (size_t i = 0; i < args->keyword_count; i++) {
        if (jn_is(&args->keywords[i].key, name)) return &args->keywords[i].value;
    }
    return NULL;
}

FILTER(f_map) { /* map(attribute=..., default=...) or map("filter", arguments) */
    (void)p;
    jn_list *items;
    jn_value made;
    const jn_value *attribute = keyword(args, "attribute"), *other = keyword(args, "default");
    SN_TRY(walk(x, v, &items, out));
    if (!attribute && (!args->count || args->items[0].kind != JN_STRING)) return jn_fail(x, "map needs the name of a filter or attribute=");
    for (size_t i = 0; i < items->count; i++) {
        if (attribute) {
            SN_TRY(attribute_of(x, &items->items[i], attribute, &made));
            if (other && made.kind == JN_UNDEFINED) made = *other;
        } else {
            jn_args rest = {args->items + 1, args->count - 1, args->keywords, args->keyword_count};
            SN_TRY(jn_enter(x));
            SN_TRY(jn_filter(x, args->items[0].text, args->items[0].size, &items->items[i], &rest, &made));
            x->depth--;
        }
        SN_TRY(jn_list_add(x, out->as.list, &made));
    }
    return SN_OK;
}

/* select, reject, selectattr, rejectattr: those that pass a test, or that are true when no test is named. */
static sn_status choose(jn_run *x, const jn_value *v, const jn_args *args, bool by_attribute, bool wanted, jn_value *out) {
    jn_list *items;
    size_t skip = by_attribute ? 1 : 0;
    if (args->count < skip) return jn_fail(x, "selectattr and rejectattr need the name of an attribute");
    const jn_value *test = args->count > skip ? &args->items[skip] : NULL;
    if (test && test->kind != JN_STRING) return jn_fail(x, "the name of a test must be a string");
    jn_args rest = {.keywords = args->keywords, .keyword_count = args->keyword_count};
    if (test) rest.items = test + 1, rest.count = args->count - skip - 1;
    SN_TRY(walk(x, v, &items, out));
    for (size_t i = 0; i < items->count; i++) {
        jn_value item = items->items[i];
        bool holds;
        if (by_attribute) SN_TRY(attribute_of(x, &item, &args->items[0], &item));
        if (test) SN_TRY(jn_check(x, test->text, test->size, &item, &rest, &holds));
        else holds = jn_true(&item);
        if (holds == wanted) SN_TRY(jn_list_add(x, out->as.list, &items->items[i]));
    }
    return SN_OK;
}
FILTER(f_select) { return (void)p, choose(x, v, args, false, true, out); }
FILTER(f_reject) { return (void)p, choose(x, v, args, false, false, out); }
FILTER(f_selectattr) { return (void)p, choose(x, v, args, true, true, out); }
FILTER(f_rejectattr) { return (void)p, choose(x, v, args, true, false, out); }

static const struct entry {
    const char *name, *params;
    sequence_fn fn;
} filters[] = {
    {"list", "", f_list},
    {"items", "", f_items},
    {"join", "d,attribute", f_join},
    {"first", "", f_first},
    {"last", "", f_last},
    {"reverse", "", f_reverse},
    {"sort", "reverse,case_sensitive,attribute", f_sort},
    {"dictsort", "case_sensitive,by,reverse", f_dictsort},
    {"unique", "case_sensitive,attribute", f_unique},
    {"min", "case_sensitive,attribute", f_min},
    {"max", "case_sensitive,attribute", f_max},
    {"sum", "attribute,start", f_sum},
    {"batch", "linecount,fill_with", f_batch},
    {"map", "*", f_map},
    {"select", "*", f_select},
    {"reject", "*", f_reject},
    {"selectattr", "*", f_selectattr},
    {"rejectattr", "*", f_rejectattr},
};

static const struct entry *find_filter(const char *name, size_t size) {
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        if (strlen(filters[i].name) == size && !memcmp(filters[i].name, name, size)) return &filters[i];
    }
    return NULL;
}

bool jn_has_sequence_filter(const char *name, size_t size) { return find_filter(name, size) != NULL; }

sn_status jn_sequence_filter(jn_run *x, const char *name, size_t size, const jn_value *v, const jn_args *args, bool *found, jn_value *out) {
    const jn_value *p[JN_PARAMS];
    const struct entry *e = find_filter(name, size);
    *found = e != NULL;
    if (!e) return SN_OK;
    SN_TRY(jn_bind(x, e->name, e->params, args, p));
    return e->fn(x, v, args, p, out);
}
