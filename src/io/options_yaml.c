/* Recipes: one YAML mapping, read event by event so that every error has its line and column. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/options_store.h"

static const size_t max_recipe = 16u << 20;

typedef struct reader {
    sn_options *o;
    const char *name;
    yaml_parser_t parser;
    yaml_event_t event;
    bool holds; /* event has to be deleted */
} reader;

/* "recipe.yaml:3:7", of the present event. */
static void place_of(const reader *r, char where[300]) {
    snprintf(where, 300, "%s:%zu:%zu", r->name, r->event.start_mark.line + 1, r->event.start_mark.column + 1);
}

static sn_status fail_here(const reader *r, const char *text) {
    char where[300];
    place_of(r, where);
    return sn_fail(SN_ERR_USAGE, "%s: %s", where, text);
}

static sn_status next(reader *r) {
    if (r->holds) yaml_event_delete(&r->event);
    r->holds = yaml_parser_parse(&r->parser, &r->event);
    if (r->holds) return SN_OK;
    if (r->parser.error == YAML_MEMORY_ERROR) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot read the recipe", r->name);
    yaml_mark_t at = r->parser.error == YAML_READER_ERROR ? (yaml_mark_t){0} : r->parser.problem_mark;
    return sn_fail(SN_ERR_USAGE, "%s:%zu:%zu: %s", r->name, at.line + 1, at.column + 1, r->parser.problem ? r->parser.problem : "not YAML");
}

static const char *scalar_text(const reader *r) { return (const char *)r->event.data.scalar.value; }

static bool is_null(const reader *r) {
    const char *text = scalar_text(r);
    return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE && (!*text || !strcmp(text, "~") || !strcasecmp(text, "null"));
}

static sn_status expect_scalar(const reader *r, const char *what) {
    if (r->event.type != YAML_SCALAR_EVENT) return fail_here(r, what);
    return strlen(scalar_text(r)) == r->event.data.scalar.length ? SN_OK : fail_here(r, "a text with a NUL");
}

/* The items of a sequence, joined by commas; the event after is the end of the sequence. */
static sn_status read_sequence(reader *r, sn_str *text) {
    for (;;) {
        SN_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return SN_OK;
        SN_TRY(expect_scalar(r, "a list holds texts only"));
        if (strchr(scalar_text(r), ',')) return fail_here(r, "an item of a list must not contain a comma");
        sn_str_printf(text, "%s%s", text->size ? "," : "", scalar_text(r));
    }
}

/* memory: {device: 24GiB, host: 64GiB} as device=24GiB,host=64GiB. */
static sn_status read_sizes(reader *r, sn_str *text) {
    for (;;) {
        SN_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return SN_OK;
        SN_TRY(expect_scalar(r, "wanted device, host or disk"));
        sn_str_printf(text, "%s%s=", text->size ? "," : "", scalar_text(r));
        SN_TRY(next(r));
        SN_TRY(expect_scalar(r, "wanted a size"));
        sn_str_add(text, scalar_text(r));
    }
}

static sn_status read_value(reader *r, sn_option_slot *slot, const char *where_of_value, sn_str *text) {
    sn_option_kind kind = slot->option->kind;
    if (r->event.type == YAML_SEQUENCE_START_EVENT && kind == SN_OPTION_LIST) SN_TRY(read_sequence(r, text));
    else if (r->event.type == YAML_MAPPING_START_EVENT && kind == SN_OPTION_BUDGET) SN_TRY(read_sizes(r, text));
    else if (r->event.type == YAML_SCALAR_EVENT) {
        SN_TRY(expect_scalar(r, ""));
        if (is_null(r)) return SN_OK; /* "key:" leaves the option as it is */
        sn_str_add(text, scalar_text(r));
    } else {
        sn_str wanted = {0};
        sn_option_wanted(slot->option, &wanted);
        sn_status s = sn_fail(SN_ERR_USAGE, "%s: wanted %s", where_of_value, wanted.data ? wanted.data : "a value");
        sn_str_free(&wanted);
        return s;
    }
    if (text->failed) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot keep the value", where_of_value);
    return sn_option_slot_set(slot, text->data ? text->data : "", false, SN_FROM_RECIPE, where_of_value);
}

static sn_status read_entry(reader *r, bool *seen) {
    char where[300], where_of_value[400];
    sn_str text = {0};
    SN_TRY(expect_scalar(r, "wanted a key"));
    place_of(r, where);
    const char *implied;
    sn_option_slot *slot = sn_options_resolve(r->o, scalar_text(r), &implied);
    if (!slot) return sn_options_set(r->o, scalar_text(r), "", SN_FROM_RECIPE, where);
    size_t index = (size_t)(slot - r->o->slots);
    if (seen[index]) return sn_fail(SN_ERR_USAGE, "%s: %s is given twice", where, slot->option->key);
    seen[index] = true;
    SN_TRY(next(r));
    place_of(r, where);
    snprintf(where_of_value, sizeof where_of_value, "%s: %s", where, slot->option->key);
    sn_status s;
    if (implied && r->event.type == YAML_SCALAR_EVENT)
        s = sn_option_slot_set_named(slot, implied, scalar_text(r), SN_FROM_RECIPE, where_of_value);
    else s = read_value(r, slot, where_of_value, &text);
    sn_str_free(&text);
    return s;
}

static sn_status read_document(reader *r, bool *seen) {
    SN_TRY(next(r)); /* stream start */
    SN_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return SN_OK; /* empty, or comments only */
    SN_TRY(next(r));
    if (r->event.type == YAML_SCALAR_EVENT && is_null(r)) return SN_OK;
    if (r->event.type != YAML_MAPPING_START_EVENT) return fail_here(r, "a recipe is a mapping: lines of \"key: value\"");
    for (;;) {
        SN_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) break;
        SN_TRY(read_entry(r, seen));
    }
    SN_TRY(next(r)); /* document end */
    SN_TRY(next(r));
    return r->event.type == YAML_STREAM_END_EVENT ? SN_OK : fail_here(r, "a recipe is one document");
}

sn_status sn_options_read_recipe_text(sn_options *o, const char *name, const char *text, size_t n) {
    reader r = {.o = o, .name = name};
    bool *seen = sn_alloc_zero(o->count + 1, sizeof *seen);
    if (!seen || !yaml_parser_initialize(&r.parser)) {
        sn_free(seen);
        return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot read the recipe", name);
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    sn_status s = read_document(&r, seen);
    if (r.holds) yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    sn_free(seen);
    return s;
}

sn_status sn_options_read_recipe(sn_options *o, const char *path) {
    char *text;
    size_t n;
    SN_TRY(sn_file_read_all(path, max_recipe, &text, &n));
    sn_status s = sn_options_read_recipe_text(o, path, text, n);
    sn_free(text);
    return s;
}
