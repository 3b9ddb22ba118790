/* snug_options: one store a verb, over the same tables as the engine's recipes. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/mem.h"
#include "io/options_store.h"
#include "passes/pass.h"

bool sn_in_list(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; at && *at; at += at[strcspn(at, ",")] == ',' ? strcspn(at, ",") + 1 : strcspn(at, ","))
        if (strcspn(at, ",") == n && !strncmp(at, word, n)) return true;
    return false;
}

static const sn_verb *find_verb(const char *name) {
    for (size_t i = 0; i < sn_n_verbs; i++)
        if (!strcmp(sn_verbs[i].name, name)) return &sn_verbs[i];
    return NULL;
}

static sn_status unknown_verb(const char *name) {
    const char *names[64];
    for (size_t i = 0; i < sn_n_verbs; i++) names[i] = sn_verbs[i].name;
    const char *near = sn_nearest_word(name, names, sn_n_verbs);
    return sn_fail(SN_ERR_USAGE, "unknown verb '%s'%s%s%s (snug --help lists them)", name, near ? "; did you mean " : "", near ? near : "",
                   near ? "?" : "");
}

static bool verb_has_table(const sn_verb *verb, const sn_option_group *table) {
    if (sn_in_list(verb->groups, table->title)) return true;
    for (size_t i = 0; i < sn_n_passes && sn_in_list(verb->groups, "passes"); i++)
        if (&sn_passes[i]->options == table) return true;
    return false;
}

/* The entry of a pass's option that matters without training; NULL: it has none. */
static const sn_inference_option *inference_option(const char *key) {
    for (size_t i = 0; i < sn_n_passes; i++)
        for (size_t k = 0; k < sn_passes[i]->n_inference; k++)
            if (!strcmp(sn_passes[i]->inference[k].key, key)) return &sn_passes[i]->inference[k];
    return NULL;
}

/* Copies a table with the verb's defaults; hides what the verb lacks. */
static sn_status copy_table(const sn_verb *verb, const sn_option_group *from, bool whole, sn_option_group *to) {
    sn_option *options = sn_alloc(from->count * sizeof *options + 1);
    if (!options) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the options of %s", verb->name);
    *to = (sn_option_group){from->title, options, from->count};
    for (size_t i = 0; i < from->count; i++) {
        options[i] = from->options[i];
        for (const sn_default *d = verb->defaults; d->key; d++)
            if (!strcmp(d->key, options[i].key)) options[i].default_text = d->text;
        const sn_inference_option *o = verb->inference == SN_INFERENCE_NONE ? NULL : inference_option(options[i].key);
        const char *text = !o ? NULL : verb->inference == SN_INFERENCE_GENERATES ? o->generating : o->evaluating;
        if (text) options[i].default_text = text;
        if (!whole && !o && !verb_has_table(verb, from) && !sn_in_list(verb->keys, options[i].key)) options[i].hidden = true;
    }
    return SN_OK;
}

/* Names that the verb's own options use are taken from the engine's tables: -p, -f, -n mean what the verb says. */
static sn_status drop_taken_aliases(const sn_option_group *own, sn_option *option, sn_pool *pool) {
    char kept[256] = "";
    if (!option->aliases) return SN_OK;
    for (const char *a = option->aliases; *a;) {
        size_t n = strcspn(a, ",");
        char one[64];
        bool taken = n >= sizeof one;
        snprintf(one, sizeof one, "%.*s", (int)n, a);
        for (size_t i = 0; i < own->count && !taken; i++)
            taken = !strcmp(own->options[i].key, one) || (own->options[i].aliases && sn_in_list(own->options[i].aliases, one));
        if (!taken) snprintf(kept + strlen(kept), sizeof kept - strlen(kept), "%s%s", *kept ? "," : "", one);
        a += n + (a[n] == ',');
    }
    if (strlen(kept) == strlen(option->aliases)) return SN_OK;
    option->aliases = *kept ? sn_pool_strdup(pool, kept) : NULL;
    return *kept && !option->aliases ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the names of option %s", option->key) : SN_OK;
}

static sn_status build_tables(snug_options *o) {
    size_t n;
    const sn_option_group *const *engine = sn_recipe_groups(&n);
    o->tables = sn_alloc_zero(n + 2, sizeof *o->tables);
    o->groups = sn_alloc_zero(n + 2, sizeof *o->groups);
    if (!o->tables || !o->groups) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the options of %s", o->verb->name);
    if (o->verb->own) SN_TRY(copy_table(o->verb, o->verb->own, true, &o->tables[o->n_groups++]));
    for (size_t i = 0; i < n; i++) {
        sn_option_group *table = &o->tables[o->n_groups++];
        SN_TRY(copy_table(o->verb, engine[i], false, table));
        for (size_t k = 0; k < table->count && o->verb->own; k++)
            SN_TRY(drop_taken_aliases(o->verb->own, (sn_option *)&table->options[k], &o->texts));
    }
    SN_TRY(copy_table(o->verb, &sn_common_options, true, &o->tables[o->n_groups++]));
    for (size_t i = 0; i < o->n_groups; i++) o->groups[i] = &o->tables[i];
    return sn_options_open(o->groups, o->n_groups, &o->store);
}

snug_status snug_options_new(const char *name, snug_options **out) {
    const sn_verb *verb = find_verb(name);
    if (!verb) return (snug_status)unknown_verb(name);
    snug_options *o = sn_alloc_zero(1, sizeof *o);
    if (!o) return (snug_status)sn_fail(SN_ERR_NO_MEMORY, "cannot allocate options");
    o->verb = verb;
    sn_status s = build_tables(o);
    if (s == SN_OK) *out = o;
    else snug_options_free(o);
    return (snug_status)s;
}

void snug_options_free(snug_options *o) {
    if (!o) return;
    sn_options_close(o->store);
    for (size_t i = 0; i < o->n_groups; i++) sn_free((void *)o->tables[i].options);
    sn_free(o->tables);
    sn_free(o->groups);
    sn_pool_free(&o->texts);
    sn_free(o);
}

/* Options that belong to other verbs: fine in a recipe that several verbs share, a mistake on the command line. */
static sn_status refuse_foreign(const snug_options *o) {
    for (size_t i = 0; i < o->store->count; i++) {
        const sn_option_slot *slot = &o->store->slots[i];
        if (!slot->option->hidden || !slot->value.set || slot->value.from != SN_FROM_COMMAND_LINE) continue;
        sn_str flag = {0};
        for (const char *c = slot->option->key; *c; c++) sn_str_char(&flag, *c == '_' ? '-' : *c);
        sn_status s = sn_fail(SN_ERR_USAGE, "%s has no option --%s", o->verb->name, flag.failed ? slot->option->key : flag.data);
        sn_str_free(&flag);
        return s;
    }
    return SN_OK;
}

snug_status snug_options_parse(snug_options *o, int argc, char *const *argv, const char **positional, size_t *n_positional) {
    sn_status s = sn_options_read_arguments(o->store, argc, argv, positional, n_positional);
    if (s == SN_OK) s = refuse_foreign(o);
    if (s == SN_OK && !sn_options_bool(o->store, "help") && !sn_options_bool(o->store, "help_all"))
        s = sn_options_read_environment(o->store);
    if (s == SN_OK && sn_options_has(o->store, "recipe")) s = sn_options_read_recipe(o->store, sn_options_string(o->store, "recipe"));
    if (s == SN_OK && sn_options_has(o->store, "deepspeed"))
        s = sn_recipe_read_deepspeed(o->store, sn_options_string(o->store, "deepspeed"));
    return (snug_status)s;
}

snug_status snug_options_set(snug_options *o, const char *key, const char *value) {
    return (snug_status)sn_options_set(o->store, key, value, SN_FROM_COMMAND_LINE, key);
}

snug_status snug_options_read_recipe(snug_options *o, const char *path) { return (snug_status)sn_options_read_recipe(o->store, path); }
snug_status snug_options_read_environment(snug_options *o) { return (snug_status)sn_options_read_environment(o->store); }

static const sn_option_slot *slot_of(const snug_options *o, const char *key, sn_option_kind a, sn_option_kind b) {
    const sn_option_slot *slot = sn_options_find(o->store, key);
    return slot && (slot->option->kind == a || slot->option->kind == b) ? slot : NULL;
}

bool snug_options_flag(const snug_options *o, const char *key) {
    return slot_of(o, key, SN_OPTION_FLAG, SN_OPTION_SWITCH) && sn_options_bool(o->store, key);
}

int64_t snug_options_integer(const snug_options *o, const char *key) {
    return slot_of(o, key, SN_OPTION_INT, SN_OPTION_INT) ? sn_options_int(o->store, key) : 0;
}

const char *snug_options_text(const snug_options *o, const char *key) {
    return slot_of(o, key, SN_OPTION_STRING, SN_OPTION_CHOICE) ? sn_options_string(o->store, key) : NULL;
}

bool snug_options_given(const snug_options *o, const char *key) {
    return sn_options_find(o->store, key) && sn_options_given(o->store, key);
}

/* ---- Help ---- */

enum { HELP_WIDTH = 100, MOST_OFTEN = 48 };

typedef struct often_list {
    sn_option options[MOST_OFTEN];
    size_t n;
} often_list;

static void show_often(often_list *list, const sn_option *option) {
    if (list->n < MOST_OFTEN) list->options[list->n++] = *option;
}

/* What passes show: the options that are often wanted in training, or all that matter without it. */
static void show_passes(const snug_options *o, often_list *list) {
    for (size_t i = 0; i < sn_n_passes; i++)
        for (size_t k = 0; k < sn_passes[i]->options.count; k++) {
            const sn_option *option = &sn_passes[i]->options.options[k];
            bool shown = o->verb->inference == SN_INFERENCE_NONE ? option->often : inference_option(option->key) != NULL;
            if (shown) show_often(list, sn_options_find(o->store, option->key)->option);
        }
}

/* The options of verb->often in that order, as a table of their own. */
static sn_status short_help(const snug_options *o, sn_str *out) {
    often_list list = {.n = 0};
    for (const char *at = o->verb->often; *at;) {
        size_t length = strcspn(at, ",");
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)length, at);
        const sn_option_slot *slot = sn_options_find(o->store, key);
        if (!strcmp(key, "passes")) show_passes(o, &list);
        else if (!slot) return sn_fail(SN_ERR_INTERNAL, "verb %s lists option %s, which no table has", o->verb->name, key);
        else show_often(&list, slot->option);
        at += length + (at[length] == ',');
    }
    const sn_option_group table = {"Options", list.options, list.n}, *groups[] = {&table};
    sn_options *store;
    SN_TRY(sn_options_open(groups, 1, &store));
    sn_options_help(store, NULL, HELP_WIDTH, out);
    sn_options_close(store);
    return SN_OK;
}

snug_status snug_options_help(const snug_options *o, bool all, char **out) {
    sn_str text = {0};
    sn_status s = SN_OK;
    sn_str_printf(&text, "usage: snug %s%s%s\n%s\n\n", o->verb->name, *o->verb->usage ? " " : "", o->verb->usage, o->verb->about);
    if (all || !o->verb->often) sn_options_help(o->store, NULL, HELP_WIDTH, &text);
    else s = short_help(o, &text);
    if (s == SN_OK) s = sn_hand_out(&text, out);
    sn_str_free(&text);
    return (snug_status)s;
}

snug_status snug_options_dump(const snug_options *o, char **out) {
    sn_str text = {0};
    sn_options_dump(o->store, &text);
    sn_status s = sn_hand_out(&text, out);
    sn_str_free(&text);
    return (snug_status)s;
}
