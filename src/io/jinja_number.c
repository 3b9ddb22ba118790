/* Arithmetic and the other binary operators, with Python's results. */
#include <math.h>
#include <string.h>

#include "io/jinja.h"

static sn_status overflow(jn_run *x) { return jn_fail(x, "an integer is too large"); }

static sn_status power(jn_run *x, const jn_value *a, const jn_value *b, jn_value *out) {
    if (a->kind == JN_FLOAT || b->kind == JN_FLOAT || b->as.i < 0) {
        *out = jn_float(pow(jn_number(a), jn_number(b)));
        return SN_OK;
    }
    int64_t result = 1, base = a->as.i;
    for (int64_t n = b->as.i; n; n >>= 1) {
        if (n & 1 && !sn_mul_i64(result, base, &result)) return overflow(x);
        if (n > 1 && !sn_mul_i64(base, base, &base)) return overflow(x);
    }
    *out = jn_int(result);
    return SN_OK;
}

static sn_status float_op(jn_run *x, char op, bool floor_division, double a, double b, jn_value *out) {
    if ((op == '/' || op == '%') && b == 0) return jn_fail(x, "division by zero");
    double rest;
    switch (op) {
    case '+': *out = jn_float(a + b); break;
    case '-': *out = jn_float(a - b); break;
    case '*': *out = jn_float(a * b); break;
    case '/': *out = jn_float(floor_division ? floor(a / b) : a / b); break;
    default: /* the remainder has the sign of b */
        rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
        *out = jn_float(rest);
    }
    return SN_OK;
}

static sn_status int_op(jn_run *x, char op, bool floor_division, int64_t a, int64_t b, jn_value *out) {
    int64_t r = 0;
    if (op == '/' && !floor_division) return float_op(x, op, false, (double)a, (double)b, out);
    if ((op == '/' || op == '%') && b == 0) return jn_fail(x, "division by zero");
    if ((op == '/' || op == '%') && b == -1) { /* INT64_MIN / -1 has no quotient */
        if (op == '/' && __builtin_sub_overflow((int64_t)0, a, &r)) return overflow(x);
    } else if (op == '/') {
        r = a / b - (a % b != 0 && (a < 0) != (b < 0));
    } else if (op == '%') {
        r = a % b;
        if (r && (r < 0) != (b < 0)) r += b;
    } else if (op == '+' ? __builtin_add_overflow(a, b, &r) : op == '-' ? __builtin_sub_overflow(a, b, &r) : !sn_mul_i64(a, b, &r)) {
        return overflow(x);
    }
    *out = jn_int(r);
    return SN_OK;
}

static sn_status repeat(jn_run *x, const jn_value *v, int64_t n, jn_value *out) {
    if (n < 0) n = 0;
    if (v->kind == JN_STRING) {
        jn_buffer b = {0};
        SN_TRY(jn_steps(x, v->size ? (size_t)n : 0));
        for (int64_t i = 0; v->size && i < n && !b.too_large && !b.text.failed; i++) jn_add(&b, v);
        return jn_buffer_value(x, &b, out);
    }
    size_t count;
    if (!sn_mul(v->as.list->count, (size_t)n, &count)) return jn_fail(x, "a list is too long");
    SN_TRY(jn_steps(x, count));
    SN_TRY(jn_list_new(x, v->kind, count, out));
    for (size_t i = 0; i < count; i++) SN_TRY(jn_list_add(x, out->as.list, &v->as.list->items[i % v->as.list->count]));
    return SN_OK;
}

static sn_status join_lists(jn_run *x, const jn_value *a, const jn_value *b, jn_value *out) {
    const jn_list *l = a->as.list, *m = b->as.list;
    SN_TRY(jn_steps(x, l->count + m->count));
    SN_TRY(jn_list_new(x, a->kind, l->count + m->count, out));
    for (size_t i = 0; i < l->count; i++) SN_TRY(jn_list_add(x, out->as.list, &l->items[i]));
    for (size_t i = 0; i < m->count; i++) SN_TRY(jn_list_add(x, out->as.list, &m->items[i]));
    return SN_OK;
}

static sn_status join_strings(jn_run *x, const jn_value *a, const jn_value *b, jn_value *out) {
    jn_buffer buffer = {0};
    SN_TRY(jn_steps(x, (a->size + b->size) >> 8));
    jn_add(&buffer, a);
    jn_add(&buffer, b);
    return jn_buffer_value(x, &buffer, out);
}

sn_status jn_binary(jn_run *x, const char *op, const jn_value *a, const jn_value *b, jn_value *out) {
    bool a_list = a->kind == JN_LIST || a->kind == JN_TUPLE, b_list = b->kind == JN_LIST || b->kind == JN_TUPLE;
    if (*op == '%' && a->kind == JN_STRING) {
        jn_args args = {b->kind == JN_TUPLE ? b->as.list->items : b, b->kind == JN_TUPLE ? b->as.list->count : 1, NULL, 0};
        return jn_format(x, a, &args, out);
    }
    if (jn_is_number(a) && jn_is_number(b)) {
        if (!strcmp(op, "**")) return power(x, a, b, out);
        bool floor_division = op[1] == '/';
        if (a->kind == JN_FLOAT || b->kind == JN_FLOAT) return float_op(x, *op, floor_division, jn_number(a), jn_number(b), out);
        return int_op(x, *op, floor_division, a->as.i, b->as.i, out);
    }
    if (!strcmp(op, "+") && a->kind == JN_STRING && b->kind == JN_STRING) return join_strings(x, a, b, out);
    if (!strcmp(op, "+") && a_list && a->kind == b->kind) return join_lists(x, a, b, out);
    if (!strcmp(op, "*")) {
        bool a_count = a->kind == JN_INT || a->kind == JN_BOOL, b_count = b->kind == JN_INT || b->kind == JN_BOOL;
        if (b_count && (a_list || a->kind == JN_STRING)) return repeat(x, a, b->as.i, out);
        if (a_count && (b_list || b->kind == JN_STRING)) return repeat(x, b, a->as.i, out);
    }
    if (a->kind == JN_UNDEFINED) return jn_undefined_error(x, a);
    if (b->kind == JN_UNDEFINED) return jn_undefined_error(x, b);
    return jn_fail(x, "'%s' %s '%s' is not possible", jn_kind_name(a), op, jn_kind_name(b));
}
