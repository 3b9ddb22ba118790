/* Evaluates expressions. */
#include <string.h>

#include "io/jinja.h"

static sn_status loop_attribute(jn_run *x, const jn_value *v, const jn_value *name, jn_value *out) {
    const jn_loop *l = v->as.loop;
    size_t i = l->index, n = l->items->count;
    if (jn_is(name, "index")) *out = jn_int((int64_t)i + 1);
    else if (jn_is(name, "index0")) *out = jn_int((int64_t)i);
    else if (jn_is(name, "revindex")) *out = jn_int((int64_t)(n - i));
    else if (jn_is(name, "revindex0")) *out = jn_int((int64_t)(n - i - 1));
    else if (jn_is(name, "first")) *out = jn_bool(i == 0);
    else if (jn_is(name, "last")) *out = jn_bool(i + 1 == n);
    else if (jn_is(name, "length")) *out = jn_int((int64_t)n);
    else if (jn_is(name, "depth")) *out = jn_int(1); /* of recursive loops only */
    else if (jn_is(name, "depth0")) *out = jn_int(0);
    else if (jn_is(name, "previtem")) *out = i ? l->items->items[i - 1] : jn_undefined("previtem", 8);
    else if (jn_is(name, "nextitem")) *out = i + 1 < n ? l->items->items[i + 1] : jn_undefined("nextitem", 8);
    else if (jn_is(name, "cycle") || jn_is(name, "changed")) {
        jn_method *m = jn_alloc(x, sizeof *m);
        if (!m) return x->why;
        *m = (jn_method){.self = *v, .cycle = jn_is(name, "cycle")};
        *out = (jn_value){.kind = JN_METHOD, .as.method = m};
    } else *out = jn_undefined(name->text, name->size);
    return SN_OK;
}

/* What Python's getattr finds: methods, a namespace's or a loop's attributes. */
static sn_status own_attribute(jn_run *x, const jn_value *v, const jn_value *name, bool *found, jn_value *out) {
    jn_method bound;
    *found = true;
    if (v->kind == JN_LOOP) return loop_attribute(x, v, name, out);
    if (v->kind == JN_NAMESPACE) {
        SN_TRY(jn_steps(x, v->as.dict->count / 8));
        const jn_value *item = jn_dict_find(v->as.dict, name->text, name->size);
        *out = item ? *item : jn_undefined(name->text, name->size);
        return SN_OK;
    }
    if (jn_find_method(v, name, &bound)) {
        jn_method *m = jn_alloc(x, sizeof *m);
        if (!m) return x->why;
        *m = bound;
        *out = (jn_value){.kind = JN_METHOD, .as.method = m};
        return SN_OK;
    }
    *found = false;
    return SN_OK;
}

sn_status jn_attribute(jn_run *x, const jn_value *v, const jn_value *name, jn_value *out) {
    bool found;
    if (v->kind == JN_UNDEFINED) return jn_undefined_error(x, v);
    SN_TRY(own_attribute(x, v, name, &found, out));
    if (found) return SN_OK;
    if (v->kind == JN_DICT) SN_TRY(jn_steps(x, v->as.dict->count / 8));
    const jn_value *item = v->kind == JN_DICT ? jn_dict_find(v->as.dict, name->text, name->size) : NULL;
    *out = item ? *item : jn_undefined(name->text, name->size);
    return SN_OK;
}

static sn_status by_index(jn_run *x, const jn_value *v, int64_t i, jn_value *out) {
    int64_t n;
    SN_TRY(jn_length(x, v, &n));
    if (i < 0) i += n;
    if (i < 0 || i >= n) {
        *out = jn_undefined("an index out of range", 21);
        return SN_OK;
    }
    if (v->kind != JN_STRING) {
        *out = v->as.list->items[i];
        return SN_OK;
    }
    size_t begin = jn_char_offset(v->text, v->size, (size_t)i);
    int32_t code;
    *out = jn_part(v, begin, begin + jn_char(v->text + begin, v->size - begin, &code));
    return SN_OK;
}

sn_status jn_item(jn_run *x, const jn_value *v, const jn_value *key, jn_value *out) {
    if (v->kind == JN_UNDEFINED) return jn_undefined_error(x, v);
    bool is_index = key->kind == JN_INT || key->kind == JN_BOOL;
    if (is_index && (v->kind == JN_STRING || v->kind == JN_LIST || v->kind == JN_TUPLE)) return by_index(x, v, key->as.i, out);
    if (v->kind == JN_DICT && key->kind != JN_LIST && key->kind != JN_DICT) {
        const jn_value *item;
        SN_TRY(jn_dict_get(x, v->as.dict, key, &item));
        if (item) return *out = *item, SN_OK;
    }
    bool found = false;
    if (key->kind == JN_STRING) SN_TRY(own_attribute(x, v, key, &found, out));
    if (!found) *out = key->kind == JN_STRING ? jn_undefined(key->text, key->size) : jn_undefined("an absent element", 17);
    return SN_OK;
}

static sn_status slice_bound(jn_run *x, const jn_value *v, int64_t none, int64_t n, int64_t step, int64_t *out) {
    if (!v || v->kind == JN_NONE) return *out = none, SN_OK;
    if (v->kind != JN_INT && v->kind != JN_BOOL) return jn_fail(x, "a slice needs integers, not '%s'", jn_kind_name(v));
    int64_t i = v->as.i, low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (i < 0) i = i < -n ? low : i + n;
    *out = i < low ? low : i > high ? high : i;
    return SN_OK;
}

static sn_status slice_string(jn_run *x, const jn_value *v, int64_t from, int64_t to, int64_t step, jn_value *out) {
    SN_TRY(jn_steps(x, v->size >> 6));
    if (step == 1) {
        size_t begin = jn_char_offset(v->text, v->size, (size_t)from);
        size_t end = to > from ? begin + jn_char_offset(v->text + begin, v->size - begin, (size_t)(to - from)) : begin;
        *out = jn_part(v, begin, end);
        return SN_OK;
    }
    jn_list *chars;
    jn_buffer b = {0};
    SN_TRY(jn_iterate(x, v, &chars));
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) jn_add(&b, &chars->items[i]);
    return jn_buffer_value(x, &b, out);
}

sn_status jn_slice(jn_run *x, const jn_value *v, const jn_value *from, const jn_value *to, const jn_value *step, jn_value *out) {
    int64_t n, by = 1, first, last;
    if (v->kind == JN_UNDEFINED) return jn_undefined_error(x, v);
    if (v->kind != JN_STRING && v->kind != JN_LIST && v->kind != JN_TUPLE) {
        *out = jn_undefined("a slice", 7);
        return SN_OK;
    }
    SN_TRY(jn_length(x, v, &n));
    if (step && step->kind != JN_NONE) {
        if ((step->kind != JN_INT && step->kind != JN_BOOL) || !step->as.i)
            return jn_fail(x, "a slice's step must be an integer other than 0");
        by = step->as.i > n + 1 ? n + 1 : step->as.i < -n - 1 ? -n - 1 : step->as.i;
    }
    SN_TRY(slice_bound(x, from, by > 0 ? 0 : n - 1, n, by, &first));
    SN_TRY(slice_bound(x, to, by > 0 ? n : -1, n, by, &last));
    if (v->kind == JN_STRING) return slice_string(x, v, first, last, by, out);
    SN_TRY(jn_list_new(x, v->kind, 0, out));
    SN_TRY(jn_steps(x, (size_t)n));
    for (int64_t i = first; by > 0 ? i < last : i > last; i += by) SN_TRY(jn_list_add(x, out->as.list, &v->as.list->items[i]));
    return SN_OK;
}

sn_status jn_call(jn_run *x, const jn_value *f, const jn_args *args, jn_value *out) {
    switch (f->kind) {
    case JN_MACRO: return jn_call_macro(x, f->as.macro, args, out);
    case JN_METHOD: return jn_call_method(x, f->as.method, args, out);
    case JN_GLOBAL: return jn_call_global(x, f, args, out);
    case JN_UNDEFINED: return jn_undefined_error(x, f);
    default: return jn_fail(x, "'%s' cannot be called", jn_kind_name(f));
    }
}

static sn_status eval_name(jn_run *x, const jn_node *n, jn_value *out) {
    for (const jn_scope *s = x->scope; s; s = s->parent) {
        x->steps += s->variables.count / 8; /* checked by the next jn_steps */
        const jn_value *v = jn_dict_find(&s->variables, n->name, n->name_size);
        if (v) return *out = *v, SN_OK;
    }
    if (!jn_find_global(n->name, n->name_size, out)) *out = jn_undefined(n->name, n->name_size);
    return SN_OK;
}

static sn_status eval_args(jn_run *x, const jn_node *n, jn_args *args) {
    jn_value *items = n->count ? jn_alloc(x, n->count * sizeof *items) : NULL;
    jn_pair *keywords = n->count ? jn_alloc(x, n->count * sizeof *keywords) : NULL;
    if (n->count && (!items || !keywords)) return x->why;
    *args = (jn_args){.items = items, .keywords = keywords};
    for (size_t i = 0; i < n->count; i++) {
        const jn_node *a = n->items[i];
        if (a->kind == JN_N_KEYWORD) {
            jn_pair *k = &keywords[args->keyword_count++];
            k->key = (jn_value){.kind = JN_STRING, .text = a->name, .size = a->name_size};
            SN_TRY(jn_eval(x, a->a, &k->value));
        } else {
            SN_TRY(jn_eval(x, a, &items[args->count++]));
        }
    }
    return SN_OK;
}

static sn_status eval_display(jn_run *x, const jn_node *n, jn_value *out) {
    jn_value v, key;
    if (n->kind != JN_N_DICT) {
        SN_TRY(jn_list_new(x, n->kind == JN_N_LIST ? JN_LIST : JN_TUPLE, n->count, out));
        for (size_t i = 0; i < n->count; i++) {
            SN_TRY(jn_eval(x, n->items[i], &v));
            SN_TRY(jn_list_add(x, out->as.list, &v));
        }
        return SN_OK;
    }
    SN_TRY(jn_dict_new(x, JN_DICT, out));
    for (size_t i = 0; i < n->count; i += 2) {
        SN_TRY(jn_eval(x, n->items[i], &key));
        SN_TRY(jn_eval(x, n->items[i + 1], &v));
        SN_TRY(jn_dict_set(x, out->as.dict, &key, &v));
    }
    return SN_OK;
}

static sn_status eval_concat(jn_run *x, const jn_node *n, jn_value *out) {
    jn_buffer b = {0};
    jn_value v;
    sn_status s = SN_OK;
    for (size_t i = 0; i < n->count && s == SN_OK; i++) {
        s = jn_eval(x, n->items[i], &v);
        if (s == SN_OK) s = jn_print(x, &b, &v);
    }
    if (s == SN_OK) s = jn_steps(x, b.text.size >> 8);
    if (s == SN_OK) return jn_buffer_value(x, &b, out);
    jn_buffer_free(&b);
    return s;
}

static sn_status compare(jn_run *x, const char *op, const jn_value *a, const jn_value *b, bool *out) {
    int order;
    switch (*op) {
    case '=': return jn_equal(x, a, b, out);
    case '!':
        SN_TRY(jn_equal(x, a, b, out));
        *out = !*out;
        return SN_OK;
    case 'i': return jn_contains(x, a, b, out);
    case 'n':
        SN_TRY(jn_contains(x, a, b, out));
        *out = !*out;
        return SN_OK;
    default:
        SN_TRY(jn_order(x, a, b, &order));
        *out = order != 2 && ((op[1] == '=' && order == 0) || order == (*op == '<' ? -1 : 1));
        return SN_OK;
    }
}

static sn_status eval_compare(jn_run *x, const jn_node *n, jn_value *out) {
    jn_value a, b;
    bool holds = true;
    SN_TRY(jn_eval(x, n->a, &a));
    for (size_t i = 0; i < n->count && holds; i++) {
        SN_TRY(jn_eval(x, n->items[i]->a, &b));
        SN_TRY(compare(x, n->items[i]->op, &a, &b, &holds));
        a = b;
    }
    *out = jn_bool(holds);
    return SN_OK;
}

static sn_status eval_sign(jn_run *x, const jn_node *n, jn_value *out) {
    jn_value v, zero = jn_int(0);
    SN_TRY(jn_eval(x, n->a, &v));
    if (v.kind == JN_FLOAT) return *out = jn_float(n->kind == JN_N_NEGATE ? -v.as.f : v.as.f), SN_OK;
    return jn_binary(x, n->kind == JN_N_NEGATE ? "-" : "+", &zero, &v, out);
}

static sn_status eval_slice(jn_run *x, const jn_node *n, jn_value *out) {
    jn_value v, from, to, step;
    SN_TRY(jn_eval(x, n->a, &v));
    if (n->b) SN_TRY(jn_eval(x, n->b, &from));
    if (n->c) SN_TRY(jn_eval(x, n->c, &to));
    if (n->d) SN_TRY(jn_eval(x, n->d, &step));
    return jn_slice(x, &v, n->b ? &from : NULL, n->c ? &to : NULL, n->d ? &step : NULL, out);
}

/* Calls, filters and tests: a value, then arguments. */
static sn_status eval_applied(jn_run *x, const jn_node *n, jn_value *out) {
    jn_value v;
    jn_args args;
    bool holds;
    SN_TRY(jn_eval(x, n->a, &v));
    SN_TRY(eval_args(x, n, &args));
    x->line = n->line;
    if (n->kind == JN_N_CALL) return jn_call(x, &v, &args, out);
    if (n->kind == JN_N_FILTER) return jn_filter(x, n->name, n->name_size, &v, &args, out);
    SN_TRY(jn_check(x, n->name, n->name_size, &v, &args, &holds));
    *out = jn_bool(holds);
    return SN_OK;
}

static sn_status eval_pair(jn_run *x, const jn_node *n, jn_value *out) { /* binary operators and subscripts */
    jn_value a, b;
    SN_TRY(jn_eval(x, n->a, &a));
    SN_TRY(jn_eval(x, n->b, &b));
    x->line = n->line;
    return n->kind == JN_N_ITEM ? jn_item(x, &a, &b, out) : jn_binary(x, n->op, &a, &b, out);
}

static sn_status eval(jn_run *x, const jn_node *n, jn_value *out) {
    jn_value v, name;
    switch (n->kind) {
    case JN_N_CONST: *out = n->value; return SN_OK;
    case JN_N_CAPTURED: *out = x->captured; return SN_OK;
    case JN_N_NAME: return eval_name(x, n, out);
    case JN_N_LIST:
    case JN_N_TUPLE:
    case JN_N_DICT: return eval_display(x, n, out);
    case JN_N_NOT:
        SN_TRY(jn_eval(x, n->a, &v));
        *out = jn_bool(!jn_true(&v));
        return SN_OK;
    case JN_N_NEGATE:
    case JN_N_POSITIVE: return eval_sign(x, n, out);
    case JN_N_BINARY:
    case JN_N_ITEM: return eval_pair(x, n, out);
    case JN_N_AND:
    case JN_N_OR: SN_TRY(jn_eval(x, n->a, out)); return jn_true(out) == (n->kind == JN_N_AND) ? jn_eval(x, n->b, out) : SN_OK;
    case JN_N_CONCAT: return eval_concat(x, n, out);
    case JN_N_COMPARE: return eval_compare(x, n, out);
    case JN_N_CONDITION:
        SN_TRY(jn_eval(x, n->a, &v));
        if (jn_true(&v)) return jn_eval(x, n->b, out);
        if (n->c) return jn_eval(x, n->c, out);
        *out = jn_undefined("the value of an inline if without else", 38);
        return SN_OK;
    case JN_N_ATTRIBUTE:
        SN_TRY(jn_eval(x, n->a, &v));
        x->line = n->line;
        name = (jn_value){.kind = JN_STRING, .text = n->name, .size = n->name_size};
        return jn_attribute(x, &v, &name, out);
    case JN_N_SLICE: return eval_slice(x, n, out);
    case JN_N_CALL:
    case JN_N_FILTER:
    case JN_N_TEST: return eval_applied(x, n, out);
    default: return sn_fail(SN_ERR_INTERNAL, "chat template line %d: node %d is not an expression", n->line, n->kind);
    }
}

sn_status jn_eval(jn_run *x, const jn_node *n, jn_value *out) {
    SN_TRY(jn_enter(x));
    x->line = n->line;
    SN_TRY(eval(x, n, out));
    x->depth--;
    return SN_OK;
}
