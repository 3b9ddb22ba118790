/* The tests behind `is`. */
#include <string.h>
#include <utf8proc.h>

#include "io/jinja.h"

enum check {
    DEFINED,
    UNDEFINED,
    NONE,
    BOOLEAN,
    TRUE,
    FALSE,
    INTEGER,
    FLOAT,
    NUMBER,
    STRING,
    MAPPING,
    SEQUENCE,
    ITERABLE,
    CALLABLE,
    ODD,
    EVEN,
    LOWER,
    UPPER,
    FILTER,
    TEST,
    ESCAPED,
    DIVISIBLE,
    EQUAL,
    UNEQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
    IN,
    SAME
};

static const struct entry {
    const char *name;
    enum check check;
} checks[] = {
    {"defined", DEFINED},   {"undefined", UNDEFINED},
    {"none", NONE},         {"boolean", BOOLEAN},
    {"true", TRUE},         {"false", FALSE},
    {"integer", INTEGER},   {"float", FLOAT},
    {"number", NUMBER},     {"string", STRING},
    {"mapping", MAPPING},   {"sequence", SEQUENCE},
    {"iterable", ITERABLE}, {"callable", CALLABLE},
    {"odd", ODD},           {"even", EVEN},
    {"lower", LOWER},       {"upper", UPPER},
    {"filter", FILTER},     {"test", TEST},
    {"escaped", ESCAPED},   {"divisibleby", DIVISIBLE},
    {"eq", EQUAL},          {"equalto", EQUAL},
    {"==", EQUAL},          {"ne", UNEQUAL},
    {"!=", UNEQUAL},        {"lt", LESS},
    {"lessthan", LESS},     {"<", LESS},
    {"le", LESS_EQUAL},     {"<=", LESS_EQUAL},
    {"gt", GREATER},        {"greaterthan", GREATER},
    {">", GREATER},         {"ge", GREATER_EQUAL},
    {">=", GREATER_EQUAL},  {"in", IN},
    {"sameas", SAME},
};

static const struct entry *find_check(const char *name, size_t size) {
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (strlen(checks[i].name) == size && !memcmp(checks[i].name, name, size)) return &checks[i];
    }
    return NULL;
}

bool jn_has_check(const char *name, size_t size) { return find_check(name, size) != NULL; }

static sn_status check_case(jn_run *x, const jn_value *v, bool upper, bool *out) { /* some letter, and none of the other case */
    jn_value s;
    int32_t c;
    bool some = false;
    SN_TRY(jn_to_string(x, v, &s));
    SN_TRY(jn_steps(x, s.size >> 4));
    *out = true;
    for (size_t at = 0, n; at < s.size; at += n) {
        n = jn_char(s.text + at, s.size - at, &c);
        if (c < 0) continue;
        bool is_upper = utf8proc_tolower(c) != c, is_lower = utf8proc_toupper(c) != c;
        if (upper ? is_lower : is_upper) *out = false;
        some |= is_upper || is_lower;
    }
    *out &= some;
    return SN_OK;
}

static bool same(const jn_value *a, const jn_value *b) {
    if (a->kind != b->kind || a->size != b->size) return false;
    if (a->kind == JN_STRING) return !a->size || !memcmp(a->text, b->text, a->size);
    return a->kind == JN_NONE || a->kind == JN_UNDEFINED || a->as.i == b->as.i;
}

static sn_status check_remainder(jn_run *x, const jn_value *v, int64_t by, int64_t wanted, bool *out) {
    jn_value divisor = jn_int(by), rest;
    SN_TRY(jn_binary(x, "%", v, &divisor, &rest));
    *out = jn_is_number(&rest) && jn_number(&rest) == (double)wanted;
    return SN_OK;
}

static sn_status check_two(jn_run *x, enum check check, const jn_value *v, const jn_value *other, bool *out) {
    int order;
    switch (check) {
    case DIVISIBLE:
        if (other->kind != JN_INT) return jn_fail(x, "divisibleby needs an integer");
        return check_remainder(x, v, other->as.i, 0, out);
    case EQUAL: return jn_equal(x, v, other, out);
    case UNEQUAL:
        SN_TRY(jn_equal(x, v, other, out));
        *out = !*out;
        return SN_OK;
    case IN: return jn_contains(x, v, other, out);
    case SAME: *out = same(v, other); return SN_OK;
    default: break;
    }
    SN_TRY(jn_order(x, v, other, &order));
    *out = (order == 0 && (check == LESS_EQUAL || check == GREATER_EQUAL)) || (order == -1 && (check == LESS || check == LESS_EQUAL)) ||
           (order == 1 && (check == GREATER || check == GREATER_EQUAL));
    return SN_OK;
}

sn_status jn_check(jn_run *x, const char *name, size_t size, const jn_value *v, const jn_args *args, bool *out) {
    const struct entry *e = find_check(name, size);
    jn_kind k = v->kind;
    if (!e) return jn_fail(x, "unknown test '%.*s'", (int)(size < 60 ? size : 60), name);
    size_t wanted = e->check >= DIVISIBLE ? 1 : 0;
    if (args->count != wanted || args->keyword_count) return jn_fail(x, "test '%s' takes %zu arguments", e->name, wanted);
    switch (e->check) {
    case DEFINED: *out = k != JN_UNDEFINED; return SN_OK;
    case UNDEFINED: *out = k == JN_UNDEFINED; return SN_OK;
    case NONE: *out = k == JN_NONE; return SN_OK;
    case BOOLEAN: *out = k == JN_BOOL; return SN_OK;
    case TRUE: *out = k == JN_BOOL && v->as.i; return SN_OK;
    case FALSE: *out = k == JN_BOOL && !v->as.i; return SN_OK;
    case INTEGER: *out = k == JN_INT; return SN_OK;
    case FLOAT: *out = k == JN_FLOAT; return SN_OK;
    case NUMBER: *out = jn_is_number(v); return SN_OK;
    case STRING: *out = k == JN_STRING; return SN_OK;
    case MAPPING: *out = k == JN_DICT; return SN_OK;
    case SEQUENCE:
    case ITERABLE: *out = k == JN_STRING || k == JN_LIST || k == JN_TUPLE || k == JN_DICT || k == JN_UNDEFINED; return SN_OK;
    case CALLABLE: *out = k == JN_UNDEFINED || k == JN_MACRO || k == JN_GLOBAL || k == JN_METHOD; return SN_OK;
    case ODD: return check_remainder(x, v, 2, 1, out);
    case EVEN: return check_remainder(x, v, 2, 0, out);
    case LOWER: return check_case(x, v, false, out);
    case UPPER: return check_case(x, v, true, out);
    case FILTER: *out = k == JN_STRING && jn_has_filter(v->text, v->size); return SN_OK;
    case TEST: *out = k == JN_STRING && jn_has_check(v->text, v->size); return SN_OK;
    case ESCAPED: *out = false; return SN_OK;
    default: return check_two(x, e->check, v, &args->items[0], out);
    }
}
