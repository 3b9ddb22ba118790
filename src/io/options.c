#include "io/options.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "io/options_store.h"

const char *sn_provenance_name(sn_provenance p) {
    static const char *const names[] = {"default", "DeepSpeed config", "recipe", "environment", "command line"};
    return names[p];
}

/* Equal, where "-" and "_" are the same. n: length of a. */
static bool same_name(const char *a, size_t n, const char *b) {
    for (size_t i = 0; i < n; i++)
        if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i]) || !b[i]) return false;
    return !b[n];
}

/* Whether the option answers to this name. An alias "bf16=bf16" is a switch that stands for a value: *implied (not
 * NULL-terminated at its end, but at a comma) is the value after its "=", NULL for a plain name. */
static bool answers_to(const sn_option *o, const char *name, size_t n, const char **implied) {
    *implied = NULL;
    if (same_name(name, n, o->key)) return true;
    for (const char *a = o->aliases ? o->aliases : ""; *a;) {
        size_t m = strcspn(a, ","), word = strcspn(a, ",=");
        char alias[64];
        if (word && word < sizeof alias) {
            memcpy(alias, a, word);
            alias[word] = 0;
            if (same_name(name, n, alias)) {
                if (word < m) *implied = a + word + 1;
                return true;
            }
        }
        a += m + (a[m] == ',');
    }
    return false;
}

static sn_option_slot *find_flag(const sn_options *o, const char *name, size_t n, const char **implied) {
    for (size_t i = 0; i < o->count; i++)
        if (answers_to(o->slots[i].option, name, n, implied)) return &o->slots[i];
    return NULL;
}

sn_status sn_option_slot_set_named(sn_option_slot *slot, const char *implied, const char *text, sn_provenance from, const char *where) {
    char value[64];
    sn_option truth = {.key = slot->option->key, .kind = SN_OPTION_FLAG};
    sn_option_value parsed = {0};
    if (!implied) return sn_option_slot_set(slot, text, false, from, where);
    SN_TRY(sn_option_parse(&truth, text, false, where, &parsed));
    bool on = parsed.truth;
    sn_option_value_free(&parsed);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(implied, ","), implied);
    return on ? sn_option_slot_set(slot, value, false, from, where) : SN_OK;
}

sn_option_slot *sn_options_resolve(const sn_options *o, const char *key, const char **implied) {
    sn_option_slot *slot = sn_options_find(o, key);
    *implied = NULL;
    return slot || strlen(key) < 2 ? slot : find_flag(o, key, strlen(key), implied);
}

sn_option_slot *sn_options_find(const sn_options *o, const char *key) {
    for (size_t i = 0; i < o->count; i++)
        if (!strcmp(o->slots[i].option->key, key)) return &o->slots[i];
    return NULL;
}

/* Two options must not answer to one name: checked once for all tables, as they come from many files. */
static sn_status check_names(const sn_options *o) {
    for (size_t i = 0; i < o->count; i++) {
        const sn_option *a = o->slots[i].option;
        if (sn_options_find(o, a->key) != &o->slots[i]) return sn_fail(SN_ERR_INTERNAL, "two options have the key %s", a->key);
        for (const char *name = a->aliases ? a->aliases : ""; *name;) {
            size_t n = strcspn(name, ",");
            const char *implied;
            for (size_t k = 0; k < o->count; k++)
                if (k != i && answers_to(o->slots[k].option, name, strcspn(name, ",="), &implied))
                    return sn_fail(SN_ERR_INTERNAL, "%s and %s both answer to %.*s", a->key, o->slots[k].option->key, (int)n, name);
            name += n + (name[n] == ',');
        }
    }
    return SN_OK;
}

sn_status sn_options_open(const sn_option_group *const *groups, size_t n_groups, sn_options **out) {
    *out = NULL;
    sn_options *o = sn_alloc_zero(1, sizeof *o);
    size_t count = 0;
    for (size_t g = 0; g < n_groups; g++) count += groups[g]->count;
    if (o) o->slots = sn_alloc_zero(count + 1, sizeof *o->slots);
    if (!o || !o->slots) {
        sn_free(o);
        return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the options");
    }
    o->groups = groups;
    o->n_groups = n_groups;
    for (size_t g = 0; g < n_groups; g++)
        for (size_t i = 0; i < groups[g]->count; i++)
            o->slots[o->count++] = (sn_option_slot){.option = &groups[g]->options[i], .group = groups[g]};
    sn_status s = check_names(o);
    for (size_t i = 0; s == SN_OK && i < o->count; i++) {
        const sn_option *option = o->slots[i].option;
        if (option->default_text) s = sn_option_parse(option, option->default_text, false, option->key, &o->slots[i].value);
        if (s == SN_ERR_USAGE) s = sn_fail_in(SN_ERR_INTERNAL, "default");
    }
    if (s != SN_OK) sn_options_close(o);
    else *out = o;
    return s;
}

void sn_options_close(sn_options *o) {
    if (!o) return;
    for (size_t i = 0; i < o->count; i++) sn_option_value_free(&o->slots[i].value);
    sn_free(o->slots);
    sn_free(o);
}

sn_status sn_option_slot_set(sn_option_slot *slot, const char *text, bool append, sn_provenance from, const char *where) {
    sn_option_value probe = {0}; /* what is overruled is still checked */
    bool overruled = slot->value.set && slot->value.from > from;
    SN_TRY(sn_option_parse(slot->option, text, append && slot->value.from == from, where, overruled ? &probe : &slot->value));
    if (!overruled) slot->value.from = from;
    sn_option_value_free(&probe);
    return SN_OK;
}

sn_status sn_options_set(sn_options *o, const char *key, const char *text, sn_provenance from, const char *where) {
    const char *implied;
    sn_option_slot *slot = sn_options_resolve(o, key, &implied);
    if (slot) return sn_option_slot_set_named(slot, implied, text, from, where);
    sn_str hint = {0};
    sn_options_suggest(o, key, false, &hint);
    sn_status s = sn_fail(SN_ERR_USAGE, "%s: unknown key '%s'%s", where, key, hint.data ? hint.data : "");
    sn_str_free(&hint);
    return s;
}

sn_status sn_options_copy(const sn_options *o, sn_options **out) {
    SN_TRY(sn_options_open(o->groups, o->n_groups, out));
    sn_status s = SN_OK;
    for (size_t i = 0; s == SN_OK && i < o->count; i++) {
        const sn_option_value *v = &o->slots[i].value;
        if (v->set && v->from > SN_FROM_DEFAULT)
            s = sn_option_slot_set(&(*out)->slots[i], v->text, false, v->from, o->slots[i].option->key);
    }
    if (s != SN_OK) {
        sn_options_close(*out);
        *out = NULL;
    }
    return s;
}

/* ---- The command line ---- */

static sn_status unknown_flag(const sn_options *o, const char *argument, const char *name, size_t n) {
    char word[64];
    sn_str hint = {0};
    size_t m = n < sizeof word ? n : sizeof word - 1;
    for (size_t i = 0; i < m; i++) word[i] = name[i] == '_' ? '-' : name[i];
    word[m] = 0;
    sn_options_suggest(o, word, true, &hint);
    sn_status s = sn_fail(SN_ERR_USAGE, "unknown option %.*s%s", (int)(name - argument + (long)n), argument, hint.data ? hint.data : "");
    sn_str_free(&hint);
    return s;
}

static bool is_truth_word(const char *text) { return text && (!strcasecmp(text, "true") || !strcasecmp(text, "false")); }

/* One option at argv[*at]; *at is left on its last word. */
static sn_status read_option(sn_options *o, int argc, char *const *argv, int *at) {
    const char *argument = argv[*at], *name = argument + (argument[1] == '-' ? 2 : 1);
    size_t n = strcspn(name, "=");
    const char *value = name[n] == '=' ? name + n + 1 : NULL;
    char where[80];
    const char *implied, *ignored;
    sn_option_slot *slot = find_flag(o, name, n, &implied);
    snprintf(where, sizeof where, "%.*s", (int)(name - argument + (long)n), argument);
    if (!slot && n > 3 && (!strncmp(name, "no-", 3) || !strncmp(name, "no_", 3))) {
        slot = find_flag(o, name + 3, n - 3, &ignored);
        if (slot && slot->option->kind != SN_OPTION_FLAG) slot = NULL;
        if (slot && value) return sn_fail(SN_ERR_USAGE, "%s takes no value", where);
        if (slot) return sn_option_slot_set(slot, "false", false, SN_FROM_COMMAND_LINE, where);
    }
    if (!slot) return unknown_flag(o, argument, name, n);
    const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    if (!value && (slot->option->kind == SN_OPTION_FLAG || implied)) {
        value = is_truth_word(next) ? argv[++*at] : "true"; /* as other trainers write it: --bf16 True */
    } else if (!value) {
        if (!next) {
            sn_str wanted = {0};
            sn_option_wanted(slot->option, &wanted);
            sn_status s = sn_fail(SN_ERR_USAGE, "%s needs a value: %s", where, wanted.data ? wanted.data : "");
            sn_str_free(&wanted);
            return s;
        }
        value = argv[++*at];
    }
    if (implied) return sn_option_slot_set_named(slot, implied, value, SN_FROM_COMMAND_LINE, where);
    return sn_option_slot_set(slot, value, true, SN_FROM_COMMAND_LINE, where);
}

sn_status sn_options_read_arguments(sn_options *o, int argc, char *const *argv, const char **positional, size_t *n_positional) {
    bool rest = false;
    *n_positional = 0;
    for (int i = 0; i < argc; i++) {
        if (!rest && !strcmp(argv[i], "--")) rest = true;
        else if (rest || argv[i][0] != '-' || !argv[i][1]) positional[(*n_positional)++] = argv[i];
        else SN_TRY(read_option(o, argc, argv, &i));
    }
    return SN_OK;
}

/* SNUG_<NAME> for the first n bytes of a name. */
static sn_status read_variable(sn_option_slot *slot, const char *key, size_t n, const char *implied) {
    char name[80] = "SNUG_";
    size_t at = 5;
    for (size_t i = 0; i < n && at < sizeof name - 1; i++) name[at++] = key[i] == '-' ? '_' : (char)toupper((unsigned char)key[i]);
    name[at] = 0;
    const char *value = getenv(name);
    return value && *value ? sn_option_slot_set_named(slot, implied, value, SN_FROM_ENVIRONMENT, name) : SN_OK;
}

sn_status sn_options_read_environment(sn_options *o) {
    for (size_t i = 0; i < o->count; i++) {
        const sn_option *option = o->slots[i].option;
        SN_TRY(read_variable(&o->slots[i], option->key, strlen(option->key), NULL));
        for (const char *a = option->aliases ? option->aliases : ""; *a;) {
            size_t n = strcspn(a, ","), word = strcspn(a, ",=");
            if (word > 1) SN_TRY(read_variable(&o->slots[i], a, word, word < n ? a + word + 1 : NULL));
            a += n + (a[n] == ',');
        }
    }
    return SN_OK;
}

/* ---- Values ---- */

static const sn_option_slot *get(const sn_options *o, const char *key, sn_option_kind a, sn_option_kind b) {
    const sn_option_slot *slot = sn_options_find(o, key);
    assert(slot && (slot->option->kind == a || slot->option->kind == b));
    (void)a, (void)b;
    return slot;
}

bool sn_options_bool(const sn_options *o, const char *key) { return get(o, key, SN_OPTION_FLAG, SN_OPTION_SWITCH)->value.truth; }
int64_t sn_options_int(const sn_options *o, const char *key) { return get(o, key, SN_OPTION_INT, SN_OPTION_INT)->value.integer; }
double sn_options_float(const sn_options *o, const char *key) { return get(o, key, SN_OPTION_FLOAT, SN_OPTION_FLOAT)->value.number; }
const char *sn_options_string(const sn_options *o, const char *key) { return get(o, key, SN_OPTION_STRING, SN_OPTION_CHOICE)->value.text; }

const char *const *sn_options_list(const sn_options *o, const char *key, size_t *count) {
    const sn_option_value *v = &get(o, key, SN_OPTION_LIST, SN_OPTION_LIST)->value;
    *count = v->count;
    return (const char *const *)v->items;
}

uint64_t sn_options_bytes(const sn_options *o, const char *key) {
    const sn_option_value *v = &get(o, key, SN_OPTION_BYTES, SN_OPTION_BYTES)->value;
    return v->set ? v->budget.bare : UINT64_MAX;
}

sn_budget sn_options_budget(const sn_options *o, const char *key) {
    const sn_option_value *v = &get(o, key, SN_OPTION_BUDGET, SN_OPTION_BUDGET)->value;
    return v->set ? v->budget : (sn_budget){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
}

static const sn_option_value *any(const sn_options *o, const char *key) {
    const sn_option_slot *slot = sn_options_find(o, key);
    assert(slot);
    return &slot->value;
}

bool sn_options_has(const sn_options *o, const char *key) { return any(o, key)->set; }
bool sn_options_given(const sn_options *o, const char *key) { return any(o, key)->set && any(o, key)->from > SN_FROM_DEFAULT; }
sn_provenance sn_options_from(const sn_options *o, const char *key) { return any(o, key)->from; }

bool sn_options_is(const sn_options *o, const char *key, const char *text) {
    const sn_option_slot *slot = sn_options_find(o, key);
    sn_option_value v = {0};
    assert(slot);
    if (!slot->value.set || sn_option_parse(slot->option, text, false, key, &v) != SN_OK) return false;
    const sn_option_value *w = &slot->value;
    bool same = v.truth == w->truth && v.integer == w->integer && v.number == w->number && !memcmp(&v.budget, &w->budget, sizeof v.budget);
    if (slot->option->kind == SN_OPTION_STRING || slot->option->kind == SN_OPTION_LIST || slot->option->kind == SN_OPTION_CHOICE)
        same = !strcmp(v.text, w->text);
    sn_option_value_free(&v);
    return same;
}
