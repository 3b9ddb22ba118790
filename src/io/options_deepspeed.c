/* DeepSpeed's JSON config, flattened: each scalar has a path ("zero_optimization.stage", "optimizer.params.betas.0"), by which the options'
 * tables say what it means here. Format: https://www.deepspeed.ai/docs/config-json/ */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/json.h"
#include "io/options_store.h"

static const size_t max_config = 1u << 20;

enum { PATH_ROOM = 256 };

typedef struct reader {
    sn_options *o;
    sn_json json;
    const char *const *hints;
    size_t n_hints;
    char path[PATH_ROOM];
    char (*said)[64]; /* by slot: the text that this file gave; "": none */
    sn_str unused;    /* paths without effect */
} reader;

/* One item of a table's list: "path", "path=value", "path:word", "path:word=value", cut at the comma. */
typedef struct entry {
    size_t path; /* its length; the path is the beginning of the item */
    const char *word, *value;
    size_t word_n, value_n;
} entry;

static entry entry_at(const char *item) {
    size_t n = strcspn(item, ","), path = strcspn(item, ",:=");
    entry e = {.path = path};
    const char *at = item + path;
    if (path < n && *at == ':') {
        e.word = at + 1;
        e.word_n = strcspn(e.word, ",=");
        at = e.word + e.word_n;
    }
    if (at < item + n && *at == '=') {
        e.value = at + 1;
        e.value_n = (size_t)(item + n - e.value);
    }
    return e;
}

static const char *after(const char *item) {
    size_t n = strcspn(item, ",");
    return item + n + (item[n] == ',');
}

/* 2: the item is at this path; 1: below it; 0: elsewhere. */
static int relation(const char *item, const char *path) {
    size_t n = strlen(path), m = entry_at(item).path;
    if (m < n || strncmp(item, path, n)) return 0;
    return m == n ? 2 : item[n] == '.' ? 1 : 0;
}

static int known(const reader *r) {
    int most = 0;
    for (size_t i = 0; i < r->o->count + r->n_hints; i++) {
        const char *list = i < r->o->count ? r->o->slots[i].option->deepspeed : r->hints[i - r->o->count];
        for (const char *item = list ? list : ""; *item; item = after(item))
            if (relation(item, r->path) > most) most = relation(item, r->path);
    }
    return most;
}

/* "ds.json:3:7: zero_optimization.stage", of the current token. */
static void place_of(const reader *r, char where[PATH_ROOM + 300]) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < r->json.start; i++) {
        column = r->json.source[i] == '\n' ? 1 : column + 1;
        line += r->json.source[i] == '\n';
    }
    snprintf(where, PATH_ROOM + 300, "%.250s:%zu:%zu: %s", r->json.name, line, column, r->path);
}

static bool same_word(const char *word, size_t n, const char *text) {
    char one[64], *end_a, *end_b;
    if (n >= sizeof one) return false;
    memcpy(one, word, n);
    one[n] = 0;
    if (!strcasecmp(one, text)) return true;
    double a = strtod(one, &end_a), b = strtod(text, &end_b); /* 0 and 0.0 */
    return n && *text && !*end_a && !*end_b && a == b;
}

static sn_status set(reader *r, size_t slot, const char *value, const char *where) {
    sn_option_slot *s = &r->o->slots[slot];
    sn_option_value a = {0}, b = {0};
    bool differs = false, words = s->option->kind == SN_OPTION_CHOICE || s->option->kind == SN_OPTION_STRING;
    sn_status status = sn_option_parse(s->option, value, false, where, &a);
    if (status == SN_OK && *r->said[slot]) {
        status = sn_option_parse(s->option, r->said[slot], false, where, &b);
        if (status == SN_OK && words) differs = strcmp(a.text, b.text) != 0;
        else if (status == SN_OK) differs = a.truth != b.truth || a.integer != b.integer || a.number != b.number;
    }
    sn_option_value_free(&a);
    sn_option_value_free(&b);
    SN_TRY(status);
    if (differs) return sn_fail(SN_ERR_USAGE, "%s: %s is %s here and %s before", where, s->option->key, value, r->said[slot]);
    snprintf(r->said[slot], sizeof r->said[slot], "%s", value);
    return sn_option_slot_set(s, value, false, SN_FROM_DEEPSPEED, where);
}

/* An item of an option's list at this path. *taken: it says something about the text; else its word is added to `words`. */
static sn_status take(reader *r, size_t slot, const char *item, const char *text, const char *where, bool *taken, sn_str *words) {
    entry e = entry_at(item);
    char value[64];
    snprintf(value, sizeof value, "%.*s", (int)(e.value_n < sizeof value ? e.value_n : 0), e.value ? e.value : "");
    if (e.word && !same_word(e.word, e.word_n, text)) {
        sn_str_printf(words, "%s%.*s", words->size ? ", " : "", (int)e.word_n, e.word);
        return SN_OK;
    }
    *taken = true;
    if (e.word || !e.value) return set(r, slot, e.value ? value : text, where);
    if (r->json.type == SN_JSON_TRUE) return set(r, slot, value, where);
    if (r->json.type == SN_JSON_FALSE) return SN_OK;
    return sn_fail(SN_ERR_USAGE, "%s: '%s' is neither true nor false", where, text);
}

static sn_status take_hint(reader *r, const char *item, const char *text, bool *taken, sn_str *words) {
    entry e = entry_at(item);
    if (e.word && !same_word(e.word, e.word_n, text)) {
        sn_str_printf(words, "%s%.*s", words->size ? ", " : "", (int)e.word_n, e.word);
        return SN_OK;
    }
    *taken = true;
    if (!e.word) sn_str_printf(&r->unused, "%s%s", r->unused.size ? ", " : "", r->path);
    return SN_OK;
}

static sn_status read_scalar(reader *r) {
    char where[PATH_ROOM + 300];
    sn_json_type type = r->json.type;
    const char *text = type == SN_JSON_TRUE ? "true" : type == SN_JSON_FALSE ? "false" : type == SN_JSON_NULL ? "auto" : r->json.text;
    bool taken = false;
    sn_str words = {0};
    sn_status s = SN_OK;
    place_of(r, where);
    if (strlen(text) != (type == SN_JSON_STRING ? r->json.size : strlen(text)))
        return sn_fail(SN_ERR_USAGE, "%s: a text with a NUL", where);
    if (!strcmp(text, "auto")) return SN_OK;
    if (known(r) != 2) return sn_fail(SN_ERR_USAGE, "%s: wanted an object or a list, found '%s'", where, text);
    for (size_t i = 0; s == SN_OK && i < r->o->count; i++)
        for (const char *item = r->o->slots[i].option->deepspeed ? r->o->slots[i].option->deepspeed : ""; s == SN_OK && *item;
             item = after(item))
            if (relation(item, r->path) == 2) s = take(r, i, item, text, where, &taken, &words);
    for (size_t i = 0; s == SN_OK && i < r->n_hints; i++)
        for (const char *item = r->hints[i]; s == SN_OK && *item; item = after(item))
            if (relation(item, r->path) == 2) s = take_hint(r, item, text, &taken, &words);
    if (s == SN_OK && (words.failed || r->unused.failed)) s = sn_fail(SN_ERR_NO_MEMORY, "%s: cannot keep the words", where);
    if (s == SN_OK && !taken)
        s = sn_fail(SN_ERR_USAGE, "%s: snug has nothing for '%s' (known: %s)", where, text, words.data ? words.data : "");
    sn_str_free(&words);
    return s;
}

/* Puts ".name" behind the path; fails where no table has anything there. */
static sn_status enter(reader *r, const char *name) {
    size_t n = strlen(r->path);
    char where[PATH_ROOM + 300];
    int written = snprintf(r->path + n, PATH_ROOM - n, "%s%s", n ? "." : "", name);
    bool fits = written >= 0 && (size_t)written < PATH_ROOM - n && !strpbrk(name, ".,:=");
    if (fits && known(r)) return SN_OK;
    place_of(r, where);
    return sn_fail(SN_ERR_USAGE, "%s: snug has nothing for this key", where);
}

/* The value that begins at the current token. */
static sn_status read_value(reader *r) {
    size_t n = strlen(r->path);
    sn_json_type type = r->json.type;
    if (type != SN_JSON_OBJECT && type != SN_JSON_ARRAY) return read_scalar(r);
    if (n && known(r) == 2) {
        char where[PATH_ROOM + 300];
        place_of(r, where);
        return sn_fail(SN_ERR_USAGE, "%s: wanted one value, found %s", where, sn_json_type_name(type));
    }
    for (int index = 0;; index++) {
        char number[16];
        SN_TRY(sn_json_next(&r->json));
        if (r->json.type == SN_JSON_OBJECT_END || r->json.type == SN_JSON_ARRAY_END) return SN_OK;
        snprintf(number, sizeof number, "%d", index);
        SN_TRY(enter(r, type == SN_JSON_ARRAY ? number : r->json.text));
        if (type == SN_JSON_OBJECT) SN_TRY(sn_json_next(&r->json));
        SN_TRY(read_value(r));
        r->path[n] = 0;
    }
}

sn_status sn_options_read_deepspeed_text(sn_options *o, const char *name, const char *text, size_t n, const char *const *hints,
                                         size_t n_hints) {
    reader r = {.o = o, .hints = hints, .n_hints = n_hints};
    r.said = sn_alloc_zero(o->count + 1, sizeof *r.said);
    if (!r.said) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot read the config", name);
    sn_json_start(&r.json, name, text, n);
    sn_status s = sn_json_want(&r.json, SN_JSON_OBJECT);
    if (s == SN_OK) s = read_value(&r);
    if (s == SN_OK) s = sn_json_want(&r.json, SN_JSON_EOF);
    if (s == SN_OK && r.unused.data) sn_info("%s: of no effect here, as the plan decides it: %s", name, r.unused.data);
    sn_json_end(&r.json);
    sn_str_free(&r.unused);
    sn_free(r.said);
    return s;
}

sn_status sn_options_read_deepspeed(sn_options *o, const char *path, const char *const *hints, size_t n_hints) {
    char *text;
    size_t n;
    SN_TRY(sn_file_read_all(path, max_config, &text, &n));
    sn_status s = sn_options_read_deepspeed_text(o, path, text, n, hints, n_hints);
    sn_free(text);
    return s;
}
