/* Expressions: tokens to nodes. The precedence is Jinja's, loosest first:
 * if-else, or, and, not, comparisons and `in`, + -, ~, * / // %, **, unary + - with filters and tests behind it. */
#include <string.h>

#include "io/jinja.h"

typedef sn_status (*rule)(jn_parser *p, jn_node **out);

bool jn_at_op(const jn_parser *p, const char *op) {
    return p->at->kind == JN_T_OPERATOR && p->at->size == strlen(op) && !memcmp(p->at->text, op, p->at->size);
}

bool jn_at_name(const jn_parser *p, const char *name) {
    return p->at->kind == JN_T_NAME && p->at->size == strlen(name) && !memcmp(p->at->text, name, p->at->size);
}

bool jn_skip_op(jn_parser *p, const char *op) { return jn_at_op(p, op) ? p->at++, true : false; }

bool jn_skip_name(jn_parser *p, const char *name) { return jn_at_name(p, name) ? p->at++, true : false; }

sn_status jn_parse_error(const jn_parser *p, const char *wanted) {
    const jn_token *t = p->at;
    int n = t->size < 40 ? (int)t->size : 40;
    if (t->kind == JN_T_END)
        return sn_fail(SN_ERR_FORMAT, "chat template line %d: expected %s, found the end of the template", t->line, wanted);
    if (t->kind == JN_T_DATA) return sn_fail(SN_ERR_FORMAT, "chat template line %d: expected %s, found text", t->line, wanted);
    return sn_fail(SN_ERR_FORMAT, "chat template line %d: expected %s, found '%.*s'", t->line, wanted, n, t->text);
}

sn_status jn_want_op(jn_parser *p, const char *op) {
    char wanted[16] = {'\'', op[0], op[0] ? op[1] : 0, 0};
    strcat(wanted, "'");
    return jn_skip_op(p, op) ? SN_OK : jn_parse_error(p, wanted);
}

sn_status jn_node_new(jn_parser *p, jn_node_kind kind, jn_node **out) {
    *out = sn_pool_alloc(p->pool, sizeof **out);
    if (!*out) return sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate memory");
    (*out)->kind = kind;
    (*out)->line = p->at->line;
    return SN_OK;
}

sn_status jn_node_add(jn_parser *p, jn_node *n, jn_node *child) {
    if (n->count == n->capacity) {
        size_t capacity = n->capacity ? n->capacity * 2 : 4;
        jn_node **items = sn_pool_alloc(p->pool, capacity * sizeof *items);
        if (!items) return sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate memory");
        if (n->count) memcpy(items, n->items, n->count * sizeof *items);
        n->items = items;
        n->capacity = capacity;
    }
    n->items[n->count++] = child;
    return SN_OK;
}

static sn_status constant(jn_parser *p, jn_value v, jn_node **out) {
    SN_TRY(jn_node_new(p, JN_N_CONST, out));
    (*out)->value = v;
    return SN_OK;
}

static sn_status name_of(jn_parser *p, const char *wanted, jn_node *n) {
    if (p->at->kind != JN_T_NAME) return jn_parse_error(p, wanted);
    n->name = p->at->text;
    n->name_size = p->at->size;
    p->at++;
    return SN_OK;
}

/* Arguments up to ')': items, with JN_N_KEYWORD { name, a } behind the plain ones. */
static sn_status arguments(jn_parser *p, jn_node *call) {
    SN_TRY(jn_want_op(p, "("));
    for (bool keywords = false; !jn_skip_op(p, ")");) {
        jn_node *item;
        const jn_token *next = p->at + 1;
        if (jn_at_op(p, "*") || jn_at_op(p, "**"))
            return sn_fail(SN_ERR_UNSUPPORTED, "chat template line %d: * and ** arguments are not supported", p->at->line);
        if (p->at->kind == JN_T_NAME && next->kind == JN_T_OPERATOR && next->size == 1 && *next->text == '=') {
            SN_TRY(jn_node_new(p, JN_N_KEYWORD, &item));
            SN_TRY(name_of(p, "a name", item));
            p->at++;
            SN_TRY(jn_parse_expression(p, &item->a));
            keywords = true;
        } else {
            if (keywords) return jn_parse_error(p, "a named argument");
            SN_TRY(jn_parse_expression(p, &item));
        }
        SN_TRY(jn_node_add(p, call, item));
        if (!jn_at_op(p, ")")) SN_TRY(jn_want_op(p, ","));
    }
    return SN_OK;
}

/* JN_N_LIST { items } or JN_N_DICT { items: key, value, key, value, ... } after its opening bracket. */
static sn_status display(jn_parser *p, bool dict, jn_node **out) {
    const char *close = dict ? "}" : "]";
    SN_TRY(jn_node_new(p, dict ? JN_N_DICT : JN_N_LIST, out));
    while (!jn_skip_op(p, close)) {
        jn_node *item;
        SN_TRY(jn_parse_expression(p, &item));
        SN_TRY(jn_node_add(p, *out, item));
        if (dict) {
            SN_TRY(jn_want_op(p, ":"));
            SN_TRY(jn_parse_expression(p, &item));
            SN_TRY(jn_node_add(p, *out, item));
        }
        if (!jn_at_op(p, close)) SN_TRY(jn_want_op(p, ","));
    }
    return SN_OK;
}

static sn_status string_literal(jn_parser *p, jn_node **out) { /* neighbours are joined */
    size_t size = 0;
    const jn_token *first = p->at;
    for (; p->at->kind == JN_T_STRING; p->at++) size += p->at->size;
    char *text = sn_pool_alloc(p->pool, size + 1), *to = text;
    if (!text) return sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate memory");
    for (const jn_token *t = first; t < p->at; to += t->size, t++) memcpy(to, t->text, t->size);
    return constant(p, (jn_value){.kind = JN_STRING, .text = text, .size = size}, out);
}

static sn_status primary(jn_parser *p, jn_node **out) {
    switch (p->at->kind) {
    case JN_T_NAME:
        if (jn_skip_name(p, "true") || jn_skip_name(p, "True")) return constant(p, jn_bool(true), out);
        if (jn_skip_name(p, "false") || jn_skip_name(p, "False")) return constant(p, jn_bool(false), out);
        if (jn_skip_name(p, "none") || jn_skip_name(p, "None")) return constant(p, (jn_value){.kind = JN_NONE}, out);
        SN_TRY(jn_node_new(p, JN_N_NAME, out));
        return name_of(p, "a name", *out);
    case JN_T_STRING: return string_literal(p, out);
    case JN_T_INT: return constant(p, jn_int(p->at++->i), out);
    case JN_T_FLOAT: return constant(p, jn_float(p->at++->f), out);
    case JN_T_OPERATOR:
        if (jn_skip_op(p, "[")) return display(p, false, out);
        if (jn_skip_op(p, "{")) return display(p, true, out);
        if (jn_skip_op(p, "(")) {
            if (jn_skip_op(p, ")")) return jn_node_new(p, JN_N_TUPLE, out);
            SN_TRY(jn_parse_tuple(p, true, out));
            return jn_want_op(p, ")");
        }
        return jn_parse_error(p, "an expression");
    default: return jn_parse_error(p, "an expression");
    }
}

/* After '[': JN_N_ITEM { a: object, b: key } or JN_N_SLICE { a, b: from, c: to, d: step }. */
static sn_status subscript(jn_parser *p, jn_node *object, jn_node **out) {
    jn_node *n, *from = NULL;
    SN_TRY(jn_node_new(p, JN_N_ITEM, &n));
    n->a = object;
    if (!jn_at_op(p, ":")) SN_TRY(jn_parse_expression(p, &from));
    n->b = from;
    if (jn_skip_op(p, ":")) {
        n->kind = JN_N_SLICE;
        if (!jn_at_op(p, ":") && !jn_at_op(p, "]")) SN_TRY(jn_parse_expression(p, &n->c));
        if (jn_skip_op(p, ":") && !jn_at_op(p, "]")) SN_TRY(jn_parse_expression(p, &n->d));
    }
    *out = n;
    return jn_want_op(p, "]");
}

/* JN_N_ATTRIBUTE { a, name }, JN_N_ITEM, JN_N_SLICE, JN_N_CALL { a: function, items: arguments } */
static sn_status postfix(jn_parser *p, jn_node **node) {
    for (;;) {
        jn_node *n;
        if (jn_skip_op(p, ".")) {
            if (p->at->kind == JN_T_INT) {
                SN_TRY(jn_node_new(p, JN_N_ITEM, &n));
                SN_TRY(constant(p, jn_int(p->at->i), &n->b));
                p->at++;
            } else {
                SN_TRY(jn_node_new(p, JN_N_ATTRIBUTE, &n));
                SN_TRY(name_of(p, "an attribute's name", n));
            }
            n->a = *node;
        } else if (jn_skip_op(p, "[")) {
            SN_TRY(subscript(p, *node, &n));
        } else if (jn_at_op(p, "(")) {
            SN_TRY(jn_node_new(p, JN_N_CALL, &n));
            n->a = *node;
            SN_TRY(arguments(p, n));
        } else {
            return SN_OK;
        }
        *node = n;
    }
}

/* After `is`: JN_N_TEST { a: value, name, items: arguments }, in a JN_N_NOT when negated. */
static sn_status test(jn_parser *p, jn_node *value, jn_node **out) {
    jn_node *n, *argument;
    bool negated = jn_skip_name(p, "not");
    SN_TRY(jn_node_new(p, JN_N_TEST, &n));
    SN_TRY(name_of(p, "the name of a test", n));
    if (!jn_has_check(n->name, n->name_size))
        return sn_fail(SN_ERR_UNSUPPORTED, "chat template line %d: unknown test '%.*s'", n->line, (int)n->name_size, n->name);
    n->a = value;
    jn_token_kind k = p->at->kind;
    if (jn_at_op(p, "(")) {
        SN_TRY(arguments(p, n));
    } else if (((k == JN_T_NAME && !jn_at_name(p, "else") && !jn_at_name(p, "or") && !jn_at_name(p, "and")) || k == JN_T_STRING ||
                k == JN_T_INT || k == JN_T_FLOAT || jn_at_op(p, "[") || jn_at_op(p, "{"))) {
        if (jn_at_name(p, "is")) return jn_parse_error(p, "no second `is` test");
        SN_TRY(primary(p, &argument));
        SN_TRY(postfix(p, &argument));
        SN_TRY(jn_node_add(p, n, argument));
    }
    *out = n;
    if (!negated) return SN_OK;
    SN_TRY(jn_node_new(p, JN_N_NOT, out));
    (*out)->a = n;
    return SN_OK;
}

/* A chain of filters on `input`: JN_N_FILTER { a: input, name, items: arguments }. `first`: a name stands where '|' would. */
sn_status jn_parse_filters(jn_parser *p, jn_node *input, bool first, jn_node **out) {
    *out = input;
    while (first || jn_skip_op(p, "|")) {
        jn_node *n;
        first = false;
        SN_TRY(jn_node_new(p, JN_N_FILTER, &n));
        SN_TRY(name_of(p, "the name of a filter", n));
        if (!jn_has_filter(n->name, n->name_size))
            return sn_fail(SN_ERR_UNSUPPORTED, "chat template line %d: unknown filter '%.*s'", n->line, (int)n->name_size, n->name);
        n->a = *out;
        if (jn_at_op(p, "(")) SN_TRY(arguments(p, n));
        *out = n;
    }
    return SN_OK;
}

static sn_status unary(jn_parser *p, bool filters, jn_node **out) {
    if (++p->depth > JN_MAX_DEPTH) return sn_fail(SN_ERR_FORMAT, "chat template line %d: nested too deeply", p->at->line);
    if (jn_at_op(p, "-") || jn_at_op(p, "+")) {
        SN_TRY(jn_node_new(p, *p->at->text == '-' ? JN_N_NEGATE : JN_N_POSITIVE, out));
        p->at++;
        SN_TRY(unary(p, false, &(*out)->a));
    } else {
        SN_TRY(primary(p, out));
    }
    SN_TRY(postfix(p, out));
    while (filters) {
        if (jn_at_op(p, "|")) SN_TRY(jn_parse_filters(p, *out, false, out));
        else if (jn_skip_name(p, "is")) SN_TRY(test(p, *out, out));
        else if (jn_at_op(p, "(")) SN_TRY(postfix(p, out));
        else break;
    }
    p->depth--;
    return SN_OK;
}

/* JN_N_BINARY { a, op, b } from left to right. */
static sn_status binary(jn_parser *p, const char *const *ops, rule operand, jn_node **out) {
    SN_TRY(operand(p, out));
    for (;;) {
        const char *const *op = ops;
        while (*op && !jn_at_op(p, *op)) op++;
        if (!*op) return SN_OK;
        jn_node *n;
        SN_TRY(jn_node_new(p, JN_N_BINARY, &n));
        p->at++;
        strcpy(n->op, *op);
        n->a = *out;
        SN_TRY(operand(p, &n->b));
        *out = n;
    }
}

static sn_status operand(jn_parser *p, jn_node **out) { return unary(p, true, out); }

static sn_status power(jn_parser *p, jn_node **out) { return binary(p, (const char *const[]){"**", NULL}, operand, out); }

static sn_status product(jn_parser *p, jn_node **out) { return binary(p, (const char *const[]){"*", "/", "//", "%", NULL}, power, out); }

static sn_status concat(jn_parser *p, jn_node **out) { /* JN_N_CONCAT { items } */
    SN_TRY(product(p, out));
    if (!jn_at_op(p, "~")) return SN_OK;
    jn_node *n, *item = *out;
    SN_TRY(jn_node_new(p, JN_N_CONCAT, &n));
    SN_TRY(jn_node_add(p, n, item));
    while (jn_skip_op(p, "~")) {
        SN_TRY(product(p, &item));
        SN_TRY(jn_node_add(p, n, item));
    }
    *out = n;
    return SN_OK;
}

static sn_status sum(jn_parser *p, jn_node **out) { return binary(p, (const char *const[]){"+", "-", NULL}, concat, out); }

/* JN_N_COMPARE { a: first operand, items: JN_N_KEYWORD { op, a: next operand } } */
static sn_status comparison(jn_parser *p, jn_node **out) {
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    jn_node *n = NULL;
    SN_TRY(sum(p, out));
    for (;;) {
        const char *op = NULL;
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
            if (jn_at_op(p, ops[i])) op = ops[i];
        }
        if (jn_at_name(p, "in")) op = "in";
        const jn_token *next = p->at + 1;
        if (jn_at_name(p, "not") && next->kind == JN_T_NAME && next->size == 2 && !memcmp(next->text, "in", 2)) op = "not in";
        if (!op) return SN_OK;
        p->at += op[0] == 'n' ? 2 : 1;
        if (!n) {
            SN_TRY(jn_node_new(p, JN_N_COMPARE, &n));
            n->a = *out;
            *out = n;
        }
        jn_node *item;
        SN_TRY(jn_node_new(p, JN_N_KEYWORD, &item));
        strcpy(item->op, op);
        SN_TRY(sum(p, &item->a));
        SN_TRY(jn_node_add(p, n, item));
    }
}

static sn_status negation(jn_parser *p, jn_node **out) {
    if (!jn_at_name(p, "not")) return comparison(p, out);
    if (++p->depth > JN_MAX_DEPTH) return sn_fail(SN_ERR_FORMAT, "chat template line %d: nested too deeply", p->at->line);
    SN_TRY(jn_node_new(p, JN_N_NOT, out));
    p->at++;
    SN_TRY(negation(p, &(*out)->a));
    p->depth--;
    return SN_OK;
}

static sn_status logical(jn_parser *p, const char *word, jn_node_kind kind, rule inner, jn_node **out) { /* { a, b } */
    SN_TRY(inner(p, out));
    while (jn_skip_name(p, word)) {
        jn_node *n;
        SN_TRY(jn_node_new(p, kind, &n));
        n->a = *out;
        SN_TRY(inner(p, &n->b));
        *out = n;
    }
    return SN_OK;
}

static sn_status conjunction(jn_parser *p, jn_node **out) { return logical(p, "and", JN_N_AND, negation, out); }

static sn_status disjunction(jn_parser *p, jn_node **out) { return logical(p, "or", JN_N_OR, conjunction, out); }

sn_status jn_parse_expression(jn_parser *p, jn_node **out) { /* JN_N_CONDITION { a: condition, b: then, c: else or NULL } */
    if (++p->depth > JN_MAX_DEPTH) return sn_fail(SN_ERR_FORMAT, "chat template line %d: nested too deeply", p->at->line);
    SN_TRY(disjunction(p, out));
    while (jn_skip_name(p, "if")) {
        jn_node *n;
        SN_TRY(jn_node_new(p, JN_N_CONDITION, &n));
        n->b = *out;
        SN_TRY(disjunction(p, &n->a));
        if (jn_skip_name(p, "else")) SN_TRY(jn_parse_expression(p, &n->c));
        *out = n;
    }
    p->depth--;
    return SN_OK;
}

static bool ends_tuple(const jn_parser *p) {
    return p->at->kind == JN_T_BLOCK_END || p->at->kind == JN_T_OUTPUT_END || jn_at_op(p, ")") || jn_at_name(p, "in");
}

/* JN_N_TUPLE { items } when a comma follows the first expression. */
sn_status jn_parse_tuple(jn_parser *p, bool conditions, jn_node **out) {
    rule inner = conditions ? jn_parse_expression : disjunction;
    SN_TRY(inner(p, out));
    if (!jn_at_op(p, ",")) return SN_OK;
    jn_node *n, *item = *out;
    SN_TRY(jn_node_new(p, JN_N_TUPLE, &n));
    SN_TRY(jn_node_add(p, n, item));
    while (jn_skip_op(p, ",") && !ends_tuple(p)) {
        SN_TRY(inner(p, &item));
        SN_TRY(jn_node_add(p, n, item));
    }
    *out = n;
    return SN_OK;
}

static sn_status single_target(jn_parser *p, jn_node **out) {
    if (jn_skip_op(p, "(")) {
        if (++p->depth > JN_MAX_DEPTH) return sn_fail(SN_ERR_FORMAT, "chat template line %d: nested too deeply", p->at->line);
        SN_TRY(jn_parse_target(p, out));
        p->depth--;
        return jn_want_op(p, ")");
    }
    SN_TRY(jn_node_new(p, JN_N_NAME, out));
    SN_TRY(name_of(p, "a name to assign to", *out));
    if (!jn_skip_op(p, ".")) return SN_OK;
    jn_node *attribute; /* of a namespace */
    SN_TRY(jn_node_new(p, JN_N_ATTRIBUTE, &attribute));
    attribute->a = *out;
    *out = attribute;
    return name_of(p, "an attribute's name", attribute);
}

sn_status jn_parse_target(jn_parser *p, jn_node **out) { /* JN_N_NAME, JN_N_ATTRIBUTE { a, name }, JN_N_TUPLE of them */
    SN_TRY(single_target(p, out));
    if (!jn_at_op(p, ",")) return SN_OK;
    jn_node *n, *item = *out;
    SN_TRY(jn_node_new(p, JN_N_TUPLE, &n));
    SN_TRY(jn_node_add(p, n, item));
    while (jn_skip_op(p, ",") && !ends_tuple(p) && !jn_at_op(p, "=")) {
        SN_TRY(single_target(p, &item));
        SN_TRY(jn_node_add(p, n, item));
    }
    *out = n;
    return SN_OK;
}
