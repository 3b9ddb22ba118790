/* Runs statements. */
#include <string.h>

#include "io/jinja.h"

sn_status jn_scope_push(jn_run *x) {
    jn_scope *s = jn_alloc(x, sizeof *s);
    if (!s) return x->why;
    s->parent = x->scope;
    x->scope = s;
    return SN_OK;
}

static sn_status assign_name(jn_run *x, const jn_node *name, const jn_value *v) {
    jn_value key = {.kind = JN_STRING, .text = name->name, .size = name->name_size};
    return jn_dict_set(x, &x->scope->variables, &key, v);
}

sn_status jn_assign(jn_run *x, const jn_node *target, const jn_value *v) {
    x->line = target->line;
    if (target->kind == JN_N_NAME) return assign_name(x, target, v);
    if (target->kind == JN_N_ATTRIBUTE) {
        jn_value object, key = {.kind = JN_STRING, .text = target->name, .size = target->name_size};
        SN_TRY(jn_eval(x, target->a, &object));
        if (object.kind != JN_NAMESPACE)
            return jn_fail(x, "cannot assign to an attribute of '%s': only a namespace has them", jn_kind_name(&object));
        return jn_dict_set(x, object.as.dict, &key, v);
    }
    jn_list *items;
    SN_TRY(jn_iterate(x, v, &items));
    if (items->count != target->count) return jn_fail(x, "%zu values for %zu names", items->count, target->count);
    for (size_t i = 0; i < target->count; i++) SN_TRY(jn_assign(x, target->items[i], &items->items[i]));
    return SN_OK;
}

/* The text that a block makes, in a scope of its own. */
static sn_status capture(jn_run *x, const jn_node *body, jn_value *out) {
    jn_buffer b = {0}, *outer = x->out;
    jn_scope *scope = x->scope;
    x->out = &b;
    sn_status s = jn_scope_push(x);
    if (s == SN_OK) s = jn_exec(x, body);
    x->out = outer;
    x->scope = scope;
    if (s == SN_OK) return jn_buffer_value(x, &b, out);
    jn_buffer_free(&b);
    return s;
}

static sn_status exec_if(jn_run *x, const jn_node *n) {
    for (size_t i = 0; i < n->count; i += 2) {
        jn_value condition;
        SN_TRY(jn_eval(x, n->items[i], &condition));
        if (jn_true(&condition)) return jn_exec(x, n->items[i + 1]);
    }
    return n->d ? jn_exec(x, n->d) : SN_OK;
}

/* The elements that a loop visits: all, or those for which its `if` holds. */
static sn_status loop_items(jn_run *x, const jn_node *n, jn_list **out) {
    jn_value sequence, kept, condition;
    SN_TRY(jn_eval(x, n->b, &sequence));
    SN_TRY(jn_iterate(x, &sequence, out));
    if (!n->c) return SN_OK;
    const jn_list *all = *out;
    jn_scope *outer = x->scope;
    SN_TRY(jn_list_new(x, JN_LIST, 0, &kept));
    SN_TRY(jn_scope_push(x));
    for (size_t i = 0; i < all->count; i++) {
        SN_TRY(jn_assign(x, n->a, &all->items[i]));
        SN_TRY(jn_eval(x, n->c, &condition));
        if (jn_true(&condition)) SN_TRY(jn_list_add(x, kept.as.list, &all->items[i]));
    }
    x->scope = outer;
    *out = kept.as.list;
    return SN_OK;
}

static sn_status exec_for(jn_run *x, const jn_node *n) {
    static const char word[] = "loop";
    jn_list *items;
    jn_scope *outer = x->scope;
    SN_TRY(loop_items(x, n, &items));
    if (!items->count) return n->d ? jn_exec(x, n->d) : SN_OK;
    jn_loop *loop = jn_alloc(x, sizeof *loop);
    if (!loop) return x->why;
    *loop = (jn_loop){.items = items};
    jn_value value = {.kind = JN_LOOP, .as.loop = loop}, key = {.kind = JN_STRING, .text = word, .size = sizeof word - 1};
    for (size_t i = 0; i < items->count && x->flow != JN_FLOW_BREAK; i++) {
        x->scope = outer; /* each round has a new scope: what it sets is gone in the next */
        SN_TRY(jn_scope_push(x));
        loop->index = i;
        SN_TRY(jn_dict_add(x, &x->scope->variables, &key, &value));
        SN_TRY(jn_assign(x, n->a, &items->items[i]));
        SN_TRY(jn_exec(x, n->items[0]));
        if (x->flow == JN_FLOW_CONTINUE) x->flow = JN_FLOW_NEXT;
    }
    x->flow = JN_FLOW_NEXT;
    x->scope = outer;
    return SN_OK;
}

static sn_status exec_generation(jn_run *x, const jn_node *n) {
    jn_value text;
    size_t begin = x->out->text.size;
    SN_TRY(capture(x, n->b, &text));
    jn_add(x->out, &text);
    if (!x->want_spans) return SN_OK;
    if (x->out != x->final) return jn_fail(x, "{%% generation %%} inside a macro or a {%% set %%} block has no place in the text");
    SN_TRY(SN_GROW(x->spans, x->span_count, x->span_capacity));
    x->spans[x->span_count++] = (sn_chat_span){begin, begin + text.size};
    return SN_OK;
}

static sn_status exec_with(jn_run *x, const jn_node *n) {
    jn_scope *outer = x->scope, *inner;
    SN_TRY(jn_scope_push(x));
    inner = x->scope;
    for (size_t i = 0; i < n->count; i += 2) { /* the values do not see the new names */
        jn_value v;
        x->scope = outer;
        SN_TRY(jn_eval(x, n->items[i + 1], &v));
        x->scope = inner;
        SN_TRY(jn_assign(x, n->items[i], &v));
    }
    SN_TRY(jn_exec(x, n->b));
    x->scope = outer;
    return SN_OK;
}

static sn_status exec_macro(jn_run *x, const jn_node *n) {
    jn_macro *m = jn_alloc(x, sizeof *m);
    if (!m) return x->why;
    *m = (jn_macro){n, x->scope};
    return assign_name(x, n, &(jn_value){.kind = JN_MACRO, .as.macro = m});
}

static sn_status bind_parameters(jn_run *x, const jn_macro *m, const jn_args *args) {
    const jn_node *n = m->node;
    size_t used = 0;
    if (args->count > n->count)
        return jn_fail(x, "macro '%.*s' takes %zu arguments, %zu given", (int)n->name_size, n->name, n->count, args->count);
    for (size_t i = 0; i < n->count; i++) {
        const jn_node *p = n->items[i];
        jn_value v = jn_undefined(p->name, p->name_size);
        bool given = i < args->count;
        if (given) v = args->items[i];
        for (size_t k = 0; k < args->keyword_count; k++) {
            const jn_value *key = &args->keywords[k].key;
            if (key->size != p->name_size || memcmp(key->text, p->name, key->size)) continue;
            if (given) return jn_fail(x, "macro '%.*s' got '%.*s' twice", (int)n->name_size, n->name, (int)key->size, key->text);
            v = args->keywords[k].value;
            given = true;
            used++;
        }
        if (!given && p->a) SN_TRY(jn_eval(x, p->a, &v));
        SN_TRY(assign_name(x, p, &v));
    }
    return used == args->keyword_count ? SN_OK
                                       : jn_fail(x, "macro '%.*s' got an argument with an unknown name", (int)n->name_size, n->name);
}

sn_status jn_call_macro(jn_run *x, const jn_macro *m, const jn_args *args, jn_value *out) {
    jn_scope *scope = x->scope;
    SN_TRY(jn_enter(x));
    x->scope = m->scope;
    SN_TRY(jn_scope_push(x));
    SN_TRY(bind_parameters(x, m, args));
    SN_TRY(capture(x, m->node->b, out));
    x->scope = scope;
    x->depth--;
    return SN_OK;
}

static sn_status exec(jn_run *x, const jn_node *n) {
    jn_value v;
    switch (n->kind) {
    case JN_N_BLOCK:
        for (size_t i = 0; i < n->count && x->flow == JN_FLOW_NEXT; i++) SN_TRY(jn_exec(x, n->items[i]));
        return SN_OK;
    case JN_N_DATA: jn_add(x->out, &n->value); return jn_steps(x, n->value.size >> 8);
    case JN_N_OUTPUT:
        SN_TRY(jn_eval(x, n->a, &v));
        SN_TRY(jn_print(x, x->out, &v));
        return x->out->too_large ? jn_fail(x, "the output is larger than %d bytes", JN_MAX_BYTES) : SN_OK;
    case JN_N_IF: return exec_if(x, n);
    case JN_N_FOR: return exec_for(x, n);
    case JN_N_SET: SN_TRY(jn_eval(x, n->b, &v)); return jn_assign(x, n->a, &v);
    case JN_N_SET_BLOCK:
        SN_TRY(capture(x, n->c, &x->captured));
        SN_TRY(jn_eval(x, n->b, &v));
        return jn_assign(x, n->a, &v);
    case JN_N_FILTER_BLOCK:
        SN_TRY(capture(x, n->b, &x->captured));
        SN_TRY(jn_eval(x, n->a, &v));
        return jn_print(x, x->out, &v);
    case JN_N_MACRO: return exec_macro(x, n);
    case JN_N_WITH: return exec_with(x, n);
    case JN_N_BREAK: x->flow = JN_FLOW_BREAK; return SN_OK;
    case JN_N_CONTINUE: x->flow = JN_FLOW_CONTINUE; return SN_OK;
    case JN_N_GENERATION: return exec_generation(x, n);
    default: return sn_fail(SN_ERR_INTERNAL, "chat template line %d: node %d is not a statement", n->line, n->kind);
    }
}

sn_status jn_exec(jn_run *x, const jn_node *n) {
    SN_TRY(jn_enter(x));
    x->line = n->line;
    SN_TRY(exec(x, n));
    x->depth--;
    return SN_OK;
}
