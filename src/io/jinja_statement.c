/* Statements: tokens to nodes. */
#include <string.h>

#include "io/jinja.h"

static sn_status statements(jn_parser *p, const char *const *ends, jn_node **out);

/* The statements up to {% end %}, whose tag is passed. */
static sn_status body(jn_parser *p, const char *end, jn_node **out) {
    SN_TRY(statements(p, (const char *const[]){end, NULL}, out));
    p->at += 2;
    return SN_OK;
}

static sn_status block_end(jn_parser *p) {
    if (p->at->kind != JN_T_BLOCK_END) return jn_parse_error(p, "'%}'");
    p->at++;
    return SN_OK;
}

/* JN_N_IF { items: condition, body, condition, body, ...; d: else or NULL } */
static sn_status parse_if(jn_parser *p, jn_node *n) {
    jn_node *item;
    do {
        SN_TRY(jn_parse_tuple(p, false, &item));
        SN_TRY(jn_node_add(p, n, item));
        SN_TRY(block_end(p));
        SN_TRY(statements(p, (const char *const[]){"elif", "else", "endif", NULL}, &item));
        SN_TRY(jn_node_add(p, n, item));
        p->at++; /* the tag's opening */
    } while (jn_skip_name(p, "elif"));
    if (jn_skip_name(p, "else")) {
        SN_TRY(block_end(p));
        return body(p, "endif", &n->d);
    }
    p->at++;
    return SN_OK;
}

/* JN_N_FOR { a: target, b: sequence, c: filter or NULL, items[0]: body, d: else or NULL } */
static sn_status parse_for(jn_parser *p, jn_node *n) {
    jn_node *inside;
    SN_TRY(jn_parse_target(p, &n->a));
    if (!jn_skip_name(p, "in")) return jn_parse_error(p, "'in'");
    SN_TRY(jn_parse_tuple(p, false, &n->b));
    if (jn_skip_name(p, "if")) SN_TRY(jn_parse_expression(p, &n->c));
    if (jn_at_name(p, "recursive")) return sn_fail(SN_ERR_UNSUPPORTED, "chat template line %d: recursive loops are not supported", n->line);
    SN_TRY(block_end(p));
    p->loops++;
    SN_TRY(statements(p, (const char *const[]){"else", "endfor", NULL}, &inside));
    p->loops--;
    SN_TRY(jn_node_add(p, n, inside));
    p->at++;
    if (jn_skip_name(p, "else")) {
        SN_TRY(block_end(p));
        return body(p, "endfor", &n->d);
    }
    p->at++;
    return SN_OK;
}

/* JN_N_SET { a: target, b: value }, JN_N_SET_BLOCK { a: target, b: filters on JN_N_CAPTURED, c: body } */
static sn_status parse_set(jn_parser *p, jn_node *n) {
    SN_TRY(jn_parse_target(p, &n->a));
    if (jn_skip_op(p, "=")) return jn_parse_tuple(p, true, &n->b);
    n->kind = JN_N_SET_BLOCK;
    SN_TRY(jn_node_new(p, JN_N_CAPTURED, &n->b));
    SN_TRY(jn_parse_filters(p, n->b, false, &n->b));
    SN_TRY(block_end(p));
    return body(p, "endset", &n->c);
}

/* JN_N_MACRO { name, items: JN_N_KEYWORD { name, a: default or NULL }, b: body } */
static sn_status parse_macro(jn_parser *p, jn_node *n) {
    if (p->at->kind != JN_T_NAME) return jn_parse_error(p, "a macro's name");
    n->name = p->at->text;
    n->name_size = p->at++->size;
    SN_TRY(jn_want_op(p, "("));
    for (bool defaults = false; !jn_skip_op(p, ")");) {
        jn_node *parameter;
        SN_TRY(jn_node_new(p, JN_N_KEYWORD, &parameter));
        if (p->at->kind != JN_T_NAME) return jn_parse_error(p, "a parameter's name");
        parameter->name = p->at->text;
        parameter->name_size = p->at++->size;
        if (jn_skip_op(p, "=")) {
            defaults = true;
            SN_TRY(jn_parse_expression(p, &parameter->a));
        } else if (defaults) {
            return jn_parse_error(p, "'=' (a parameter without a default follows one with)");
        }
        SN_TRY(jn_node_add(p, n, parameter));
        if (!jn_at_op(p, ")")) SN_TRY(jn_want_op(p, ","));
    }
    SN_TRY(block_end(p));
    int loops = p->loops;
    p->loops = 0;
    SN_TRY(body(p, "endmacro", &n->b));
    p->loops = loops;
    return SN_OK;
}

/* JN_N_WITH { items: target, value, target, value, ...; b: body } */
static sn_status parse_with(jn_parser *p, jn_node *n) {
    while (p->at->kind != JN_T_BLOCK_END) {
        jn_node *item;
        if (n->count) SN_TRY(jn_want_op(p, ","));
        SN_TRY(jn_parse_target(p, &item));
        SN_TRY(jn_node_add(p, n, item));
        SN_TRY(jn_want_op(p, "="));
        SN_TRY(jn_parse_expression(p, &item));
        SN_TRY(jn_node_add(p, n, item));
    }
    SN_TRY(block_end(p));
    return body(p, "endwith", &n->b);
}

static sn_status statement(jn_parser *p, jn_node **out) {
    SN_TRY(jn_node_new(p, JN_N_IF, out));
    jn_node *n = *out;
    if (jn_skip_name(p, "if")) {
        SN_TRY(parse_if(p, n));
    } else if (jn_skip_name(p, "for")) {
        n->kind = JN_N_FOR;
        SN_TRY(parse_for(p, n));
    } else if (jn_skip_name(p, "set")) {
        n->kind = JN_N_SET;
        SN_TRY(parse_set(p, n));
    } else if (jn_skip_name(p, "macro")) {
        n->kind = JN_N_MACRO;
        SN_TRY(parse_macro(p, n));
    } else if (jn_skip_name(p, "with")) {
        n->kind = JN_N_WITH;
        SN_TRY(parse_with(p, n));
    } else if (jn_skip_name(p, "filter")) { /* JN_N_FILTER_BLOCK { a: filters on JN_N_CAPTURED, b: body } */
        n->kind = JN_N_FILTER_BLOCK;
        SN_TRY(jn_node_new(p, JN_N_CAPTURED, &n->a));
        SN_TRY(jn_parse_filters(p, n->a, true, &n->a));
        SN_TRY(block_end(p));
        SN_TRY(body(p, "endfilter", &n->b));
    } else if (jn_skip_name(p, "generation")) { /* JN_N_GENERATION { b: body } */
        n->kind = JN_N_GENERATION;
        p->has_generation = true;
        int loops = p->loops; /* the body is a block of its own, as in transformers: break and continue cannot leave it */
        p->loops = 0;
        SN_TRY(block_end(p));
        SN_TRY(body(p, "endgeneration", &n->b));
        p->loops = loops;
    } else if (jn_at_name(p, "break") || jn_at_name(p, "continue")) {
        n->kind = jn_at_name(p, "break") ? JN_N_BREAK : JN_N_CONTINUE;
        if (!p->loops) return jn_parse_error(p, "a loop around it");
        p->at++;
    } else {
        return jn_parse_error(p, "a statement that chat templates use");
    }
    return block_end(p);
}

static bool at_tag(const jn_parser *p, const char *name) {
    jn_parser there = *p;
    there.at++;
    return p->at->kind == JN_T_BLOCK && jn_at_name(&there, name);
}

/* JN_N_BLOCK { items }: up to a tag named in `ends` (p->at is left on its opening), or to the template's end if that is NULL.
 * JN_N_DATA { value }, JN_N_OUTPUT { a } */
static sn_status statements(jn_parser *p, const char *const *ends, jn_node **out) {
    if (++p->depth > JN_MAX_DEPTH) return sn_fail(SN_ERR_FORMAT, "chat template line %d: nested too deeply", p->at->line);
    SN_TRY(jn_node_new(p, JN_N_BLOCK, out));
    for (;;) {
        jn_node *n;
        for (const char *const *end = ends; end && *end; end++) {
            if (!at_tag(p, *end)) continue;
            p->depth--;
            return SN_OK;
        }
        if (p->at->kind == JN_T_DATA) {
            SN_TRY(jn_node_new(p, JN_N_DATA, &n));
            n->value = (jn_value){.kind = JN_STRING, .text = p->at->text, .size = p->at->size};
            p->at++;
        } else if (p->at->kind == JN_T_OUTPUT) {
            SN_TRY(jn_node_new(p, JN_N_OUTPUT, &n));
            p->at++;
            SN_TRY(jn_parse_tuple(p, true, &n->a));
            if (p->at->kind != JN_T_OUTPUT_END) return jn_parse_error(p, "'}}'");
            p->at++;
        } else if (p->at->kind == JN_T_BLOCK) {
            p->at++;
            SN_TRY(statement(p, &n));
        } else if (ends) {
            char wanted[48] = "{% ";
            while (ends[1]) ends++;
            strcat(strcat(wanted, *ends), " %}");
            return jn_parse_error(p, wanted);
        } else {
            p->depth--;
            return SN_OK;
        }
        SN_TRY(jn_node_add(p, *out, n));
    }
}

sn_status jn_parse(sn_pool *pool, const jn_token *tokens, jn_node **out, bool *has_generation) {
    jn_parser p = {.pool = pool, .tokens = tokens, .at = tokens};
    SN_TRY(statements(&p, NULL, out));
    *has_generation = p.has_generation;
    return SN_OK;
}
