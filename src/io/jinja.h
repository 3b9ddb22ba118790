/* The Jinja interpreter behind chat_template.h: values, syntax tree, and what its files share.
 *
 * Source: the Jinja 3.1 template language (jinja.palletsprojects.com) as Hugging Face transformers configures it for chat
 * templates: sandboxed and immutable, trim_blocks, lstrip_blocks, loop controls, {% generation %}.
 *
 *   text -> jinja_lex.c -> tokens -> jinja_parse.c (expressions), jinja_statement.c -> tree of jn_node in the template's pool
 *        -> jinja_exec.c (statements), jinja_eval.c (expressions), jinja_filter.c, jinja_method.c, jinja_test_ops.c -> text
 *
 * Values are immutable, except namespaces, and live in the run's pool until the run ends. A run counts steps, bytes and
 * depth, so that a hostile template ends with an error.
 *
 * Each string may carry a mask of the same size: a byte is 1 where the text came from the conversation and not from the
 * template. Every operation keeps it, so the output tells which bytes must never become control tokens. */
#ifndef SN_IO_JINJA_H
#define SN_IO_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"
#include "io/chat_template.h"

enum {
    JN_MAX_STEPS = 20000000,  /* nodes evaluated and list elements visited in one run */
    JN_MAX_BYTES = 256 << 20, /* values made in one run; also the largest string */
    JN_MAX_DEPTH = 200,       /* nesting of source, values and macro calls */
    JN_MAX_SOURCE = 4 << 20,  /* bytes of a template */
    JN_MAX_RANGE = 100000,    /* as in Jinja's sandbox */
    JN_PARAMS = 6
};

typedef enum jn_kind {
    JN_UNDEFINED,
    JN_NONE,
    JN_BOOL,
    JN_INT,
    JN_FLOAT,
    JN_STRING,
    JN_LIST,
    JN_TUPLE,
    JN_DICT,
    JN_NAMESPACE,
    JN_MACRO,
    JN_GLOBAL, /* a function such as range */
    JN_METHOD, /* a method bound to its object */
    JN_LOOP
} jn_kind;

typedef struct jn_value {
    jn_kind kind;
    size_t size;      /* bytes of text */
    const char *text; /* a string's UTF-8, not NUL-terminated; what an undefined value was called; a global's name */
    union {
        const uint8_t *mask; /* of a string; NULL: all from the template */
        int64_t i;           /* JN_INT, JN_BOOL */
        double f;
        struct jn_list *list; /* JN_LIST, JN_TUPLE */
        struct jn_dict *dict; /* JN_DICT, JN_NAMESPACE */
        struct jn_macro *macro;
        struct jn_method *method;
        struct jn_loop *loop;
    } as;
} jn_value;

typedef struct jn_list {
    size_t count, capacity;
    jn_value *items;
} jn_list;

typedef struct jn_pair {
    jn_value key, value;
} jn_pair;

typedef struct jn_dict { /* in the order of insertion */
    size_t count, capacity;
    jn_pair *pairs;
} jn_dict;

typedef struct jn_scope {
    struct jn_scope *parent;
    jn_dict variables;
} jn_scope;

typedef struct jn_macro {
    const struct jn_node *node;
    jn_scope *scope; /* where it was defined */
} jn_macro;

typedef struct jn_method {
    jn_value self;
    const struct jn_method_entry *entry; /* NULL: loop.cycle or loop.changed, told apart by `cycle` */
    bool cycle;
} jn_method;

typedef struct jn_loop {
    const jn_list *items;
    size_t index;
    jn_value changed;
    bool has_changed;
} jn_loop;

typedef enum jn_node_kind {
    JN_N_CONST,
    JN_N_NAME,
    JN_N_LIST,
    JN_N_TUPLE,
    JN_N_DICT,
    JN_N_NOT,
    JN_N_NEGATE,
    JN_N_POSITIVE,
    JN_N_BINARY,
    JN_N_AND,
    JN_N_OR,
    JN_N_CONCAT,
    JN_N_COMPARE,
    JN_N_CONDITION,
    JN_N_ATTRIBUTE,
    JN_N_ITEM,
    JN_N_SLICE,
    JN_N_CALL,
    JN_N_FILTER,
    JN_N_TEST,
    JN_N_KEYWORD,
    JN_N_CAPTURED,
    JN_N_DATA,
    JN_N_OUTPUT,
    JN_N_BLOCK,
    JN_N_IF,
    JN_N_FOR,
    JN_N_SET,
    JN_N_SET_BLOCK,
    JN_N_MACRO,
    JN_N_FILTER_BLOCK,
    JN_N_WITH,
    JN_N_BREAK,
    JN_N_CONTINUE,
    JN_N_GENERATION
} jn_node_kind;

/* One node; what a, b, c, d and items hold stands beside the code that builds each kind. */
typedef struct jn_node {
    jn_node_kind kind;
    int line;
    char op[8];
    const char *name;
    size_t name_size;
    jn_value value;
    struct jn_node *a, *b, *c, *d;
    struct jn_node **items;
    size_t count, capacity;
} jn_node;

typedef enum jn_token_kind {
    JN_T_DATA,
    JN_T_OUTPUT,
    JN_T_OUTPUT_END,
    JN_T_BLOCK,
    JN_T_BLOCK_END,
    JN_T_NAME,
    JN_T_STRING,
    JN_T_INT,
    JN_T_FLOAT,
    JN_T_OPERATOR,
    JN_T_END
} jn_token_kind;

typedef struct jn_token {
    jn_token_kind kind;
    int line;
    const char *text;
    size_t size;
    int64_t i;
    double f;
} jn_token;

typedef struct jn_parser {
    sn_pool *pool;
    const jn_token *tokens, *at;
    int depth, loops;
    bool has_generation;
} jn_parser;

/* A string under construction, with its mask. Errors are kept until jn_buffer_value. */
typedef struct jn_buffer {
    sn_str text, mask; /* mask is empty until the first masked byte */
    bool too_large;
} jn_buffer;

typedef struct jn_run {
    sn_pool pool;
    size_t bytes, steps;
    int depth, line;
    sn_status why; /* of a failed jn_alloc */
    enum { JN_FLOW_NEXT, JN_FLOW_BREAK, JN_FLOW_CONTINUE } flow;
    jn_scope *scope;
    jn_buffer *out;    /* where output goes now */
    jn_buffer *final;  /* the text of the whole run */
    jn_value captured; /* a block's text, for the filters that follow it */
    int64_t now;       /* for strftime_now: seconds since 1970 */
    bool want_spans;
    sn_chat_span *spans; /* of {% generation %} blocks, sn_alloc'd */
    size_t span_count, span_capacity;
} jn_run;

typedef struct jn_args {
    const jn_value *items;
    size_t count;
    const jn_pair *keywords;
    size_t keyword_count;
} jn_args;

/* jinja_lex.c: all tokens of a template, ended by JN_T_END. */
sn_status jn_lex(sn_pool *pool, const char *source, size_t size, jn_token **out);

/* jinja_parse.c, jinja_statement.c */
sn_status jn_parse(sn_pool *pool, const jn_token *tokens, jn_node **out, bool *has_generation);
sn_status jn_parse_expression(jn_parser *p, jn_node **out);
sn_status jn_parse_tuple(jn_parser *p, bool conditions, jn_node **out); /* an expression, or several with commas */
sn_status jn_parse_target(jn_parser *p, jn_node **out);                 /* names to assign to, for `for` and `with` */
sn_status jn_parse_filters(jn_parser *p, jn_node *input, bool first, jn_node **out);
sn_status jn_node_new(jn_parser *p, jn_node_kind kind, jn_node **out);
sn_status jn_node_add(jn_parser *p, jn_node *n, jn_node *child);
bool jn_at_op(const jn_parser *p, const char *op);
bool jn_at_name(const jn_parser *p, const char *name);
bool jn_skip_op(jn_parser *p, const char *op);
bool jn_skip_name(jn_parser *p, const char *name);
sn_status jn_want_op(jn_parser *p, const char *op);
sn_status jn_parse_error(const jn_parser *p, const char *wanted);

/* jinja_value.c */
void *jn_alloc(jn_run *x, size_t bytes); /* zeroed; NULL with x->why and the message set */
sn_status jn_fail(jn_run *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
sn_status jn_steps(jn_run *x, size_t n);
sn_status jn_enter(jn_run *x); /* one level deeper; x->depth-- on the way out */
sn_status jn_undefined_error(jn_run *x, const jn_value *v);
jn_value jn_bool(bool b);
jn_value jn_int(int64_t i);
jn_value jn_float(double f);
jn_value jn_text(const char *text);                            /* a constant */
jn_value jn_part(const jn_value *s, size_t begin, size_t end); /* bytes [begin, end) of a string, mask included */
jn_value jn_undefined(const char *name, size_t size);
sn_status jn_list_new(jn_run *x, jn_kind kind, size_t capacity, jn_value *out);
sn_status jn_list_add(jn_run *x, jn_list *l, const jn_value *v);
sn_status jn_dict_new(jn_run *x, jn_kind kind, jn_value *out);
sn_status jn_dict_set(jn_run *x, jn_dict *d, const jn_value *key, const jn_value *v);
sn_status jn_dict_add(jn_run *x, jn_dict *d, const jn_value *key, const jn_value *v);          /* a key known to be new */
sn_status jn_dict_get(jn_run *x, const jn_dict *d, const jn_value *key, const jn_value **out); /* NULL: absent */
const jn_value *jn_dict_find(const jn_dict *d, const char *name, size_t size);
bool jn_true(const jn_value *v);
bool jn_is_number(const jn_value *v);            /* int, bool, float */
bool jn_is(const jn_value *s, const char *text); /* a string equal to text */
double jn_number(const jn_value *v);
sn_status jn_equal(jn_run *x, const jn_value *a, const jn_value *b, bool *out);
sn_status jn_order(jn_run *x, const jn_value *a, const jn_value *b, int *out); /* -1, 0, 1; 2: not comparable (NaN) */
sn_status jn_contains(jn_run *x, const jn_value *item, const jn_value *in, bool *out);
sn_status jn_iterate(jn_run *x, const jn_value *v, jn_list **out); /* list, tuple, dict's keys, characters, undefined */
sn_status jn_length(jn_run *x, const jn_value *v, int64_t *out);
const char *jn_kind_name(const jn_value *v); /* as Python's type(v).__name__ */

/* jinja_text.c */
void jn_add(jn_buffer *b, const jn_value *s);
void jn_add_bytes(jn_buffer *b, const char *text, size_t n, bool masked);
void jn_add_text(jn_buffer *b, const char *text);
sn_status jn_buffer_value(jn_run *x, jn_buffer *b, jn_value *out); /* moves the text into the pool and frees the buffer */
void jn_buffer_free(jn_buffer *b);
sn_status jn_print(jn_run *x, jn_buffer *b, const jn_value *v); /* as Python's str() */
sn_status jn_repr(jn_run *x, jn_buffer *b, const jn_value *v);  /* as Python's repr() */
sn_status jn_to_string(jn_run *x, const jn_value *v, jn_value *out);
int jn_float_text(double f, char out[40]);              /* as Python's repr(float) */
size_t jn_char(const char *s, size_t n, int32_t *code); /* bytes of the character at s (1 and code -1 when malformed) */
size_t jn_char_count(const char *s, size_t n);
size_t jn_char_offset(const char *s, size_t n, size_t index); /* byte offset of a character */
bool jn_is_space(int32_t code);
jn_value jn_strip(const jn_value *s, const jn_value *chars, int sides); /* 1 left, 2 right, 3 both; chars NULL: white space */
size_t jn_line_end(const jn_value *s, size_t at,
                   size_t *next); /* as Python's str.splitlines: where the line at `at` ends, where the next begins */
bool jn_find(const jn_value *in, const jn_value *what, size_t from, size_t *at);
sn_status jn_replace(jn_run *x, const jn_value *s, const jn_value *old, const jn_value *new, int64_t count, jn_value *out);
sn_status jn_change_case(jn_run *x, const jn_value *s, char how, jn_value *out); /* l, u, c(apitalize), t(itle) */

/* jinja_json.c */
struct json_t;
sn_status jn_from_json(jn_run *x, const struct json_t *json, bool masked, jn_value *out);
sn_status jn_to_json(jn_run *x, jn_buffer *b, const jn_value *v, bool ascii, bool sort, const jn_value *indent, const char *item_separator,
                     const char *key_separator);

/* jinja_eval.c */
sn_status jn_eval(jn_run *x, const jn_node *n, jn_value *out);
sn_status jn_call(jn_run *x, const jn_value *f, const jn_args *args, jn_value *out);
sn_status jn_attribute(jn_run *x, const jn_value *v, const jn_value *name, jn_value *out); /* v.name */
sn_status jn_item(jn_run *x, const jn_value *v, const jn_value *key, jn_value *out);       /* v[key] */
sn_status jn_slice(jn_run *x, const jn_value *v, const jn_value *from, const jn_value *to, const jn_value *step, jn_value *out);
sn_status jn_binary(jn_run *x, const char *op, const jn_value *a, const jn_value *b, jn_value *out); /* jinja_number.c */

/* jinja_exec.c */
sn_status jn_exec(jn_run *x, const jn_node *n);
sn_status jn_call_macro(jn_run *x, const jn_macro *m, const jn_args *args, jn_value *out);
sn_status jn_scope_push(jn_run *x);
sn_status jn_assign(jn_run *x, const jn_node *target, const jn_value *v);

/* jinja_filter.c, jinja_method.c, jinja_check.c */
sn_status jn_bind(jn_run *x, const char *what, const char *params, const jn_args *args, const jn_value *p[JN_PARAMS]);
sn_status jn_filter(jn_run *x, const char *name, size_t size, const jn_value *v, const jn_args *args, jn_value *out);
bool jn_has_filter(const char *name, size_t size);
sn_status jn_sequence_filter(jn_run *x, const char *name, size_t size, const jn_value *v, const jn_args *args, bool *found, jn_value *out);
bool jn_has_sequence_filter(const char *name, size_t size);
sn_status jn_check(jn_run *x, const char *name, size_t size, const jn_value *v, const jn_args *args, bool *out);
bool jn_has_check(const char *name, size_t size);
bool jn_find_method(const jn_value *v, const jn_value *name, jn_method *out);
sn_status jn_call_method(jn_run *x, const jn_method *m, const jn_args *args, jn_value *out);
sn_status jn_call_global(jn_run *x, const jn_value *f, const jn_args *args, jn_value *out);
bool jn_find_global(const char *name, size_t size, jn_value *out);
sn_status jn_format(jn_run *x, const jn_value *format, const jn_args *args, jn_value *out); /* "%s" % values */

#endif
