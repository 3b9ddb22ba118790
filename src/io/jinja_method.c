/* Methods of strings, mappings, sequences and loops. Those that change their object are refused, as in Jinja's immutable sandbox. */
#include <string.h>
#include <utf8proc.h>

#include "io/jinja.h"

typedef sn_status (*method_fn)(jn_run *x, const jn_value *v, const jn_args *args, const jn_value *p[JN_PARAMS], jn_value *out);
struct jn_method_entry {
    jn_kind kind;
    const char *name, *params;
    method_fn fn;
};

#define METHOD(name) static sn_status name(jn_run *x, const jn_value *v, const jn_args *args, const jn_value *p[JN_PARAMS], jn_value *out)
#define UNUSED (void)args, (void)p

static sn_status want_string(jn_run *x, const char *what, const jn_value *v) {
    if (!v) return jn_fail(x, "%s lacks an argument", what);
    return v->kind == JN_STRING ? SN_OK : jn_fail(x, "%s needs a string, not '%s'", what, jn_kind_name(v));
}

static sn_status strip(jn_run *x, const jn_value *v, const jn_value *chars, int sides, jn_value *out) {
    if (chars && chars->kind == JN_NONE) chars = NULL;
    if (chars) SN_TRY(want_string(x, "strip", chars));
    SN_TRY(jn_steps(x, v->size >> 4));
    *out = jn_strip(v, chars, sides);
    return SN_OK;
}
METHOD(m_strip) { return (void)args, strip(x, v, p[0], 3, out); }
METHOD(m_lstrip) { return (void)args, strip(x, v, p[0], 1, out); }
METHOD(m_rstrip) { return (void)args, strip(x, v, p[0], 2, out); }

static sn_status affix(jn_run *x, const jn_value *v, const jn_value *what, bool end, bool *out) {
    if (what && what->kind == JN_TUPLE) {
        *out = false;
        for (size_t i = 0; i < what->as.list->count && !*out; i++) {
            SN_TRY(want_string(x, "startswith and endswith", &what->as.list->items[i]));
            SN_TRY(affix(x, v, &what->as.list->items[i], end, out));
        }
        return SN_OK;
    }
    SN_TRY(want_string(x, "startswith and endswith", what));
    *out = what->size <= v->size && (!what->size || !memcmp(v->text + (end ? v->size - what->size : 0), what->text, what->size));
    return SN_OK;
}

static sn_status affix_method(jn_run *x, const jn_value *v, const jn_value *what, bool end, jn_value *out) {
    bool has;
    SN_TRY(affix(x, v, what, end, &has));
    *out = jn_bool(has);
    return SN_OK;
}
METHOD(m_startswith) { return (void)args, affix_method(x, v, p[0], false, out); }
METHOD(m_endswith) { return (void)args, affix_method(x, v, p[0], true, out); }

METHOD(m_removeprefix) {
    bool has;
    (void)args;
    SN_TRY(want_string(x, "removeprefix", p[0]));
    SN_TRY(affix(x, v, p[0], false, &has));
    *out = jn_part(v, has ? p[0]->size : 0, v->size);
    return SN_OK;
}

METHOD(m_removesuffix) {
    bool has;
    (void)args;
    SN_TRY(want_string(x, "removesuffix", p[0]));
    SN_TRY(affix(x, v, p[0], true, &has));
    *out = jn_part(v, 0, v->size - (has ? p[0]->size : 0));
    return SN_OK;
}

static sn_status case_method(jn_run *x, const jn_value *v, char how, jn_value *out) { return jn_change_case(x, v, how, out); }
METHOD(m_lower) { return UNUSED, case_method(x, v, 'l', out); }
METHOD(m_upper) { return UNUSED, case_method(x, v, 'u', out); }
METHOD(m_capitalize) { return UNUSED, case_method(x, v, 'c', out); }
METHOD(m_title) { return UNUSED, case_method(x, v, 't', out); }

METHOD(m_replace) {
    (void)args;
    SN_TRY(want_string(x, "replace", p[0]));
    SN_TRY(want_string(x, "replace", p[1]));
    return jn_replace(x, v, p[0], p[1], p[2] && p[2]->kind == JN_INT ? p[2]->as.i : -1, out);
}

static sn_status add_part(jn_run *x, jn_list *l, const jn_value *v, size_t begin, size_t end) {
    jn_value part = jn_part(v, begin, end);
    SN_TRY(jn_steps(x, (end - begin) >> 6));
    return jn_list_add(x, l, &part);
}

/* Words between runs of white space. The rest after `most` splits keeps its white space, except at its start (or end). */
static sn_status split_space(jn_run *x, const jn_value *v, int64_t most, bool from_end, jn_list *l) {
    jn_value rest = jn_strip(v, NULL, from_end ? 2 : 1);
    while (rest.size) {
        int32_t c;
        size_t begin = 0, end = 0;
        if (most == 0) {
            rest = from_end ? jn_strip(&rest, NULL, 2) : rest;
            return add_part(x, l, &rest, 0, rest.size);
        }
        if (from_end) {
            end = begin = rest.size;
            for (size_t at = 0, n; at < rest.size; at += n) { /* the last space before the last word */
                n = jn_char(rest.text + at, rest.size - at, &c);
                if (jn_is_space(c)) begin = at + n;
                else if (begin == rest.size) begin = 0;
            }
        } else {
            for (size_t n; end < rest.size; end += n) {
                n = jn_char(rest.text + end, rest.size - end, &c);
                if (jn_is_space(c)) break;
            }
        }
        SN_TRY(jn_steps(x, rest.size >> 8));
        SN_TRY(add_part(x, l, &rest, begin, from_end ? rest.size : end));
        jn_value left = from_end ? jn_part(&rest, 0, begin) : jn_part(&rest, end, rest.size);
        rest = jn_strip(&left, NULL, from_end ? 2 : 1);
        most--;
    }
    return SN_OK;
}

static bool find_last(const jn_value *v, const jn_value *what, size_t end, size_t *at) {
    for (size_t i = end; what->size <= end && i + 1 > what->size; i--) {
        if (memcmp(v->text + i - what->size, what->text, what->size)) continue;
        *at = i - what->size;
        return true;
    }
    return false;
}

static void reverse(jn_list *l) {
    for (size_t i = 0; i < l->count / 2; i++) {
        jn_value swap = l->items[i];
        l->items[i] = l->items[l->count - 1 - i];
        l->items[l->count - 1 - i] = swap;
    }
}

static sn_status split(jn_run *x, const jn_value *v, const jn_value *separator, const jn_value *limit, bool from_end, jn_value *out) {
    int64_t most = limit && limit->kind == JN_INT ? limit->as.i : -1;
    size_t at, begin = 0, end = v->size;
    SN_TRY(jn_list_new(x, JN_LIST, 0, out));
    SN_TRY(jn_steps(x, v->size >> 4));
    if (!separator || separator->kind == JN_NONE) {
        SN_TRY(split_space(x, v, most, from_end, out->as.list));
    } else {
        SN_TRY(want_string(x, "split", separator));
        if (!separator->size) return jn_fail(x, "split at an empty separator");
        for (; most != 0; most--) {
            if (!(from_end ? find_last(v, separator, end, &at) : jn_find(v, separator, begin, &at))) break;
            SN_TRY(from_end ? add_part(x, out->as.list, v, at + separator->size, end) : add_part(x, out->as.list, v, begin, at));
            if (from_end) end = at;
            else begin = at + separator->size;
        }
        SN_TRY(add_part(x, out->as.list, v, begin, end));
    }
    if (from_end) reverse(out->as.list);
    return SN_OK;
}
METHOD(m_split) { return (void)args, split(x, v, p[0], p[1], false, out); }
METHOD(m_rsplit) { return (void)args, split(x, v, p[0], p[1], true, out); }

METHOD(m_splitlines) {
    (void)args;
    bool keep = p[0] && jn_true(p[0]);
    SN_TRY(jn_list_new(x, JN_LIST, 0, out));
    for (size_t begin = 0, end, next; begin < v->size; begin = next) {
        end = jn_line_end(v, begin, &next);
        SN_TRY(add_part(x, out->as.list, v, begin, keep ? next : end));
    }
    return jn_steps(x, v->size >> 4);
}

static sn_status find_method(jn_run *x, const jn_value *v, const jn_value *what, bool last, jn_value *out) {
    size_t at;
    SN_TRY(want_string(x, "find", what));
    SN_TRY(jn_steps(x, v->size >> 4));
    bool found = last ? find_last(v, what, v->size, &at) : jn_find(v, what, 0, &at);
    *out = jn_int(found ? (int64_t)jn_char_count(v->text, at) : -1);
    return SN_OK;
}
METHOD(m_find) { return (void)args, find_method(x, v, p[0], false, out); }
METHOD(m_rfind) { return (void)args, find_method(x, v, p[0], true, out); }

METHOD(m_str_index) {
    (void)args;
    SN_TRY(find_method(x, v, p[0], false, out));
    return out->as.i < 0 ? jn_fail(x, "index: substring not found") : SN_OK;
}

METHOD(m_str_count) {
    (void)args;
    int64_t n = 0;
    size_t at = 0;
    SN_TRY(want_string(x, "count", p[0]));
    SN_TRY(jn_steps(x, v->size >> 4));
    if (!p[0]->size) n = (int64_t)jn_char_count(v->text, v->size) + 1;
    for (; p[0]->size && jn_find(v, p[0], at, &at); at += p[0]->size) n++;
    *out = jn_int(n);
    return SN_OK;
}

METHOD(m_join) {
    (void)args;
    jn_list *items;
    jn_buffer b = {0};
    if (!p[0]) return jn_fail(x, "join lacks an argument");
    SN_TRY(jn_iterate(x, p[0], &items));
    SN_TRY(jn_steps(x, items->count));
    for (size_t i = 0; i < items->count; i++) SN_TRY(want_string(x, "join", &items->items[i]));
    for (size_t i = 0; i < items->count; i++) {
        if (i) jn_add(&b, v);
        jn_add(&b, &items->items[i]);
    }
    return jn_buffer_value(x, &b, out);
}

/* Whether all characters are of a class, and there are some: d(igits), a(lphabetic), n (either), s(pace). */
static sn_status all_of(jn_run *x, const jn_value *v, char class, jn_value *out) {
    int32_t c;
    bool all = v->size != 0;
    for (size_t at = 0, n; at < v->size && all; at += n) {
        n = jn_char(v->text + at, v->size - at, &c);
        utf8proc_category_t k = c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
        bool digit = k == UTF8PROC_CATEGORY_ND, letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
        all = class == 'd' ? digit : class == 'a' ? letter : class == 's' ? jn_is_space(c) : digit || letter;
    }
    *out = jn_bool(all);
    return jn_steps(x, v->size >> 4);
}
METHOD(m_isdigit) { return UNUSED, all_of(x, v, 'd', out); }
METHOD(m_isalpha) { return UNUSED, all_of(x, v, 'a', out); }
METHOD(m_isalnum) { return UNUSED, all_of(x, v, 'n', out); }
METHOD(m_isspace) { return UNUSED, all_of(x, v, 's', out); }

METHOD(m_str_format) { /* {}, {0}, {name}; no format after a colon */
    (void)p;
    jn_buffer b = {0};
    size_t next = 0;
    sn_status s = SN_OK;
    for (size_t at = 0; at < v->size && s == SN_OK; at++) {
        char c = v->text[at];
        if ((c == '{' || c == '}') && at + 1 < v->size && v->text[at + 1] == c) at++;
        else if (c == '{') {
            size_t end = at + 1, index = 0;
            while (end < v->size && v->text[end] != '}') end++;
            jn_value name = jn_part(v, at + 1, end);
            const jn_value *found = NULL;
            for (size_t k = 0; k < args->keyword_count; k++) {
                const jn_value *key = &args->keywords[k].key;
                if (name.size && key->size == name.size && !memcmp(key->text, name.text, name.size)) found = &args->keywords[k].value;
            }
            for (size_t i = 0; i < name.size && i < 6; i++) index = index * 10 + (size_t)(unsigned char)(name.text[i] - '0');
            if (!name.size) index = next++;
            if (!found && index < args->count) found = &args->items[index];
            s = found ? jn_print(x, &b, found)
                      : jn_fail(x, "format: '{%.*s}' names no argument", (int)(name.size < 60 ? name.size : 60), name.text);
            at = end;
            continue;
        }
        jn_value one = jn_part(v, at, at + 1);
        jn_add(&b, &one);
    }
    if (s == SN_OK) return jn_buffer_value(x, &b, out);
    jn_buffer_free(&b);
    return s;
}

METHOD(m_get) {
    (void)args;
    const jn_value *item;
    if (!p[0]) return jn_fail(x, "get lacks an argument");
    SN_TRY(jn_dict_get(x, v->as.dict, p[0], &item));
    *out = item ? *item : p[1] ? *p[1] : (jn_value){.kind = JN_NONE};
    return SN_OK;
}

METHOD(m_items) {
    UNUSED;
    return jn_filter(x, "items", 5, v, &(jn_args){0}, out);
}

METHOD(m_keys) {
    UNUSED;
    jn_list *keys;
    SN_TRY(jn_iterate(x, v, &keys));
    *out = (jn_value){.kind = JN_LIST, .as.list = keys};
    return SN_OK;
}

METHOD(m_values) {
    UNUSED;
    SN_TRY(jn_list_new(x, JN_LIST, v->as.dict->count, out));
    for (size_t i = 0; i < v->as.dict->count; i++) SN_TRY(jn_list_add(x, out->as.list, &v->as.dict->pairs[i].value));
    return jn_steps(x, v->as.dict->count);
}

METHOD(m_copy) { /* values never change */
    (void)x, UNUSED;
    *out = *v;
    return SN_OK;
}

static sn_status list_scan(jn_run *x, const jn_value *v, const jn_value *what, int64_t *first, int64_t *count) {
    if (!what) return jn_fail(x, "index and count need an argument");
    *first = -1;
    *count = 0;
    SN_TRY(jn_steps(x, v->as.list->count));
    for (size_t i = 0; i < v->as.list->count; i++) {
        bool same;
        SN_TRY(jn_equal(x, &v->as.list->items[i], what, &same));
        if (same && *first < 0) *first = (int64_t)i;
        *count += same;
    }
    return SN_OK;
}

METHOD(m_list_index) {
    (void)args;
    int64_t first, count;
    SN_TRY(list_scan(x, v, p[0], &first, &count));
    *out = jn_int(first);
    return first < 0 ? jn_fail(x, "index: the value is not in the list") : SN_OK;
}

METHOD(m_list_count) {
    (void)args;
    int64_t first, count;
    SN_TRY(list_scan(x, v, p[0], &first, &count));
    *out = jn_int(count);
    return SN_OK;
}

METHOD(m_refused) {
    (void)v, UNUSED, (void)out;
    return jn_fail(x, "a method that changes its object is not allowed here");
}

static const struct jn_method_entry methods[] = {
    {JN_STRING, "strip", "chars", m_strip},
    {JN_STRING, "lstrip", "chars", m_lstrip},
    {JN_STRING, "rstrip", "chars", m_rstrip},
    {JN_STRING, "startswith", "prefix", m_startswith},
    {JN_STRING, "endswith", "suffix", m_endswith},
    {JN_STRING, "removeprefix", "prefix", m_removeprefix},
    {JN_STRING, "removesuffix", "suffix", m_removesuffix},
    {JN_STRING, "lower", "", m_lower},
    {JN_STRING, "upper", "", m_upper},
    {JN_STRING, "capitalize", "", m_capitalize},
    {JN_STRING, "title", "", m_title},
    {JN_STRING, "replace", "old,new,count", m_replace},
    {JN_STRING, "split", "sep,maxsplit", m_split},
    {JN_STRING, "rsplit", "sep,maxsplit", m_rsplit},
    {JN_STRING, "splitlines", "keepends", m_splitlines},
    {JN_STRING, "find", "sub", m_find},
    {JN_STRING, "rfind", "sub", m_rfind},
    {JN_STRING, "index", "sub", m_str_index},
    {JN_STRING, "count", "sub", m_str_count},
    {JN_STRING, "join", "items", m_join},
    {JN_STRING, "isdigit", "", m_isdigit},
    {JN_STRING, "isalpha", "", m_isalpha},
    {JN_STRING, "isalnum", "", m_isalnum},
    {JN_STRING, "isspace", "", m_isspace},
    {JN_STRING, "format", "*", m_str_format},
    {JN_DICT, "get", "key,default", m_get},
    {JN_DICT, "items", "", m_items},
    {JN_DICT, "keys", "", m_keys},
    {JN_DICT, "values", "", m_values},
    {JN_DICT, "copy", "", m_copy},
    {JN_DICT, "update", "*", m_refused},
    {JN_DICT, "pop", "*", m_refused},
    {JN_DICT, "setdefault", "*", m_refused},
    {JN_LIST, "index", "value", m_list_index},
    {JN_LIST, "count", "value", m_list_count},
    {JN_LIST, "copy", "", m_copy},
    {JN_LIST, "append", "*", m_refused},
    {JN_LIST, "extend", "*", m_refused},
    {JN_LIST, "insert", "*", m_refused},
    {JN_LIST, "pop", "*", m_refused},
    {JN_LIST, "remove", "*", m_refused},
    {JN_LIST, "reverse", "*", m_refused},
    {JN_LIST, "sort", "*", m_refused},
    {JN_TUPLE, "index", "value", m_list_index},
    {JN_TUPLE, "count", "value", m_list_count},
};

bool jn_find_method(const jn_value *v, const jn_value *name, jn_method *out) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (methods[i].kind != v->kind || !jn_is(name, methods[i].name)) continue;
        *out = (jn_method){.self = *v, .entry = &methods[i]};
        return true;
    }
    return false;
}

sn_status jn_call_method(jn_run *x, const jn_method *m, const jn_args *args, jn_value *out) {
    const jn_value *p[JN_PARAMS];
    if (m->entry) {
        SN_TRY(jn_bind(x, m->entry->name, m->entry->params, args, p));
        return m->entry->fn(x, &m->self, args, p, out);
    }
    jn_loop *l = m->self.as.loop;
    if (m->cycle) {
        if (!args->count) return jn_fail(x, "loop.cycle needs arguments");
        *out = args->items[l->index % args->count];
        return SN_OK;
    }
    jn_value now;
    bool same = false;
    SN_TRY(jn_list_new(x, JN_TUPLE, args->count, &now));
    for (size_t i = 0; i < args->count; i++) SN_TRY(jn_list_add(x, now.as.list, &args->items[i]));
    if (l->has_changed) SN_TRY(jn_equal(x, &now, &l->changed, &same));
    l->changed = now;
    l->has_changed = true;
    *out = jn_bool(!same);
    return SN_OK;
}
