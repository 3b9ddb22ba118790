#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "io/options_store.h"

enum { HELP_COLUMN = 30, LEAST_WIDTH = 40, LONGEST_WORD = 63 };

/* ---- Help ---- */

static const char *metavar_of(const sn_option *o) {
    if (o->metavar) return o->metavar;
    switch (o->kind) {
    case SN_OPTION_FLAG: return "";
    case SN_OPTION_SWITCH: return "on|off";
    case SN_OPTION_INT: return "N";
    case SN_OPTION_FLOAT: return "X";
    case SN_OPTION_STRING: return "TEXT";
    case SN_OPTION_LIST: return "A,B,...";
    case SN_OPTION_CHOICE: return "NAME";
    case SN_OPTION_BYTES:
    case SN_OPTION_BUDGET: return "SIZE";
    }
    return "";
}

static void trim(sn_str *out) {
    while (out->size && out->data[out->size - 1] == ' ') out->data[--out->size] = 0;
}

/* Appends words of text from *column on, wrapped before `width`, further lines starting at HELP_COLUMN. */
static void add_wrapped(sn_str *out, const char *text, int width, int *column) {
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (*column + n > width && *column > HELP_COLUMN) {
            trim(out);
            sn_str_printf(out, "\n%*s", HELP_COLUMN, "");
            *column = HELP_COLUMN;
        }
        sn_str_append(out, text, (size_t)n);
        *column += n;
        text += n;
        if (*text == ' ') {
            text++;
            if (*column < width) {
                sn_str_char(out, ' ');
                ++*column;
            }
        }
    }
}

static void add_names(const sn_option *o, sn_str *head) {
    for (const char *a = o->aliases ? o->aliases : ""; *a;) { /* short ones first; long aliases are accepted silently */
        size_t n = strcspn(a, ",");
        if (n <= 2) sn_str_printf(head, "-%.*s, ", (int)n, a);
        a += n + (a[n] == ',');
    }
    sn_str_add(head, "--");
    for (const char *c = o->key; *c; c++) sn_str_char(head, *c == '_' ? '-' : *c);
    sn_str_printf(head, "%s%s", *metavar_of(o) ? " " : "", metavar_of(o));
}

static void add_option(const sn_option *o, int width, sn_str *out) {
    sn_str head = {0}, body = {0};
    sn_str_add(&head, "  ");
    add_names(o, &head);
    sn_str_add(&body, o->help ? o->help : "");
    if (o->kind == SN_OPTION_CHOICE) {
        sn_str_add(&body, ":");
        for (const char *c = o->choices; *c;) {
            size_t n = strcspn(c, ",");
            sn_str_printf(&body, " %.*s%s", (int)n, c, c[n] ? "," : "");
            c += n + (c[n] == ',');
        }
    }
    bool plain_false = o->kind == SN_OPTION_FLAG && o->default_text && !strcmp(o->default_text, "false");
    if (o->default_text && *o->default_text && !plain_false) sn_str_printf(&body, " (default: %s)", o->default_text);
    if (head.failed || body.failed) out->failed = true;
    else {
        int column = (int)head.size;
        sn_str_add(out, head.data);
        sn_str_printf(out, column + 2 > HELP_COLUMN ? "\n%*s" : "%*s", column + 2 > HELP_COLUMN ? HELP_COLUMN : HELP_COLUMN - column, "");
        column = HELP_COLUMN;
        add_wrapped(out, body.data, width, &column);
        trim(out);
        sn_str_char(out, '\n');
    }
    sn_str_free(&head);
    sn_str_free(&body);
}

void sn_options_help(const sn_options *o, const char *title, int width, sn_str *out) {
    if (width < LEAST_WIDTH) width = LEAST_WIDTH;
    bool first = true;
    for (size_t g = 0; g < o->n_groups; g++) {
        const sn_option_group *group = o->groups[g];
        if (title && strcmp(title, group->title)) continue;
        bool headed = false;
        for (size_t i = 0; i < group->count; i++) {
            const sn_option *option = &group->options[i];
            if (option->hidden) continue;
            if (!headed) sn_str_printf(out, "%s%s:\n", first ? "" : "\n", group->title);
            headed = true;
            first = false;
            add_option(option, width, out);
        }
    }
}

/* ---- The options in force, as YAML ---- */

/* Texts that YAML would not read back as themselves are quoted. */
static void add_scalar(sn_str *out, const char *text, bool is_text) {
    bool plain = *text && !is_text;
    if (is_text && *text && (isalnum((unsigned char)*text) || *text == '/' || *text == '.' || *text == '_')) {
        plain = true;
        for (const char *p = text; *p; p++)
            if (!isalnum((unsigned char)*p) && !strchr("/._-+@=", *p)) plain = false;
        if (!strcasecmp(text, "null")) plain = false;
    }
    if (plain) sn_str_add(out, text);
    else sn_str_json(out, text, strlen(text)); /* a JSON string is a YAML double-quoted one */
}

static void add_value(const sn_option *o, const sn_option_value *v, sn_str *out) {
    switch (o->kind) {
    case SN_OPTION_FLAG: sn_str_add(out, v->truth ? "true" : "false"); break;
    case SN_OPTION_SWITCH: sn_str_add(out, v->truth ? "on" : "off"); break;
    case SN_OPTION_LIST:
        sn_str_char(out, '[');
        for (size_t i = 0; i < v->count; i++) {
            if (i) sn_str_add(out, ", ");
            add_scalar(out, v->items[i], true);
        }
        sn_str_char(out, ']');
        break;
    case SN_OPTION_INT:
    case SN_OPTION_FLOAT: add_scalar(out, v->text, false); break;
    default: add_scalar(out, v->text, true);
    }
}

const sn_option *sn_options_entry(const sn_options *o, size_t i, sn_str *value) {
    if (i >= o->count) return NULL;
    if (o->slots[i].value.set) add_value(o->slots[i].option, &o->slots[i].value, value);
    return o->slots[i].option;
}

void sn_options_dump(const sn_options *o, sn_str *out) {
    const sn_option_group *last = NULL;
    for (size_t i = 0; i < o->count; i++) {
        const sn_option_slot *slot = &o->slots[i];
        if (slot->group != last) sn_str_printf(out, "%s# %s\n", last ? "\n" : "", slot->group->title);
        last = slot->group;
        if (!slot->value.set) {
            sn_str_printf(out, "# %s: not set\n", slot->option->key);
            continue;
        }
        sn_str_printf(out, "%s: ", slot->option->key);
        add_value(slot->option, &slot->value, out);
        sn_str_printf(out, "  # %s\n", sn_provenance_name(slot->value.from));
    }
}

/* ---- Near words ---- */

/* Optimal string alignment distance (Damerau 1964) of words of at most LONGEST_WORD letters. */
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    static _Thread_local int rows[3][LONGEST_WORD + 1];
    if (n > LONGEST_WORD || m > LONGEST_WORD) return LONGEST_WORD;
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && second[j - 2] + 1 < best) best = second[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *sn_nearest_word(const char *word, const char *const *words, size_t n) {
    const char *nearest = NULL;
    int best = (int)strlen(word) / 3 + 1; /* one wrong letter in three */
    for (size_t i = 0; i < n; i++) {
        int d = distance(word, words[i]);
        if (d > best || (d == best && nearest)) continue;
        best = d;
        nearest = words[i];
    }
    return nearest;
}

void sn_options_suggest(const sn_options *o, const char *word, bool flags, sn_str *out) {
    const char *nearest = NULL;
    sn_pool names = {0};
    const char **words = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < o->count; i++) {
        const sn_option *option = o->slots[i].option;
        char *name = sn_pool_strdup(&names, option->key);
        for (char *c = name; flags && c && *c; c++) *c = *c == '_' ? '-' : *c;
        if (name && !option->hidden && SN_GROW(words, count, capacity) == SN_OK) words[count++] = name;
        for (const char *a = flags && option->aliases ? option->aliases : ""; *a;) {
            size_t n = strcspn(a, ","), length = strcspn(a, ",=");
            char *copy = length > 2 ? sn_pool_printf(&names, "%.*s", (int)length, a) : NULL;
            if (copy && SN_GROW(words, count, capacity) == SN_OK) words[count++] = copy;
            a += n + (a[n] == ',');
        }
    }
    nearest = sn_nearest_word(word, words, count);
    if (nearest) sn_str_printf(out, "; did you mean %s%s?", flags ? "--" : "", nearest);
    sn_free(words);
    sn_pool_free(&names);
}
