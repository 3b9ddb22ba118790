/* Options: one table entry gives the flag, the recipe key, the environment variable, the help line and the type.
 *
 *     static const sn_option options[] = {
 *         {.key = "max_grad_norm", .kind = SN_OPTION_FLOAT, .default_text = "1.0", .metavar = "X",
 *          .help = "largest norm of the gradients; 0 switches clipping off", .has_least = true},
 *     };
 *     const sn_option_group sn_optimizer_options = SN_OPTION_GROUP("Optimizer", options);
 *
 * The flag is the key with dashes: --max-grad-norm.
 * Tables belong to the file that uses the options (a pass, the engine, a verb). A store holds the values of several tables.
 * A value comes from, in rising precedence: the table's default, a DeepSpeed config, a YAML recipe, the environment (SNUG_MAX_GRAD_NORM),
 * the command line. The order of reading does not matter: what ranks lower never replaces what ranks higher. */
#ifndef SN_IO_OPTIONS_H
#define SN_IO_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef enum sn_option_kind {
    SN_OPTION_FLAG,   /* --x, --no-x, --x=true|false; a recipe's true, false, yes, no, on, off */
    SN_OPTION_SWITCH, /* --x on|off: a flag whose value must be said */
    SN_OPTION_INT,    /* int64 */
    SN_OPTION_FLOAT,  /* double; finite */
    SN_OPTION_STRING,
    SN_OPTION_LIST,   /* strings: --x a,b --x c; a recipe's sequence */
    SN_OPTION_CHOICE, /* one of .choices */
    SN_OPTION_BYTES,  /* a size: 8GiB */
    SN_OPTION_BUDGET, /* sizes: 8GiB, or device=24GiB,host=64GiB,disk=500GiB; a recipe's mapping */
} sn_option_kind;

typedef struct sn_option {
    const char *key;          /* "max_grad_norm"; the flag is --max-grad-norm */
    const char *aliases;      /* "c,max-model-len": further names, on the command line and (longer than a letter) in recipes;
                                 "bf16=bf16": a switch that stands for a value; NULL: none */
    const char *metavar;      /* shown in the help for the value; NULL: by kind */
    const char *default_text; /* NULL: unset unless given */
    const char *help;
    sn_option_kind kind;
    const char *choices; /* CHOICE: "linear,cosine" */
    const char *also;    /* CHOICE: "cos=cosine": names that others use for some of them; may be NULL */
    double least, most;  /* INT and FLOAT: allowed range, where has_* says so */
    bool has_least, has_most;
    const char *deepspeed; /* where DeepSpeed's JSON says the same, comma-separated: "zero_optimization.stage". An item of an array is
                              named by its index. "bf16.enabled=bf16": a switch that stands for a value; "optimizer.type:Adam=adamw": a
                              word of DeepSpeed's and what it is here. NULL: nowhere */
    bool hidden;           /* not in the help */
    bool by_rank;          /* the ranks of a job may differ in it */
    bool often;            /* one that most users of its table want to see: short helps show it */
} sn_option;

typedef struct sn_option_group {
    const char *title;
    const sn_option *options;
    size_t count;
} sn_option_group;
#define SN_OPTION_GROUP(title, table) \
    { title, table, sizeof(table) / sizeof *(table) }

typedef enum sn_provenance { SN_FROM_DEFAULT, SN_FROM_DEEPSPEED, SN_FROM_RECIPE, SN_FROM_ENVIRONMENT, SN_FROM_COMMAND_LINE } sn_provenance;
const char *sn_provenance_name(sn_provenance p); /* "default", "DeepSpeed config", "recipe", ... */

/* UINT64_MAX: not said. */
typedef struct sn_budget {
    uint64_t bare; /* a number without a name */
    uint64_t device, host, disk;
} sn_budget;

typedef struct sn_options sn_options;

/* The groups stay the caller's. SN_ERR_INTERNAL when two options share a key or a name, or a default does not parse. */
sn_status sn_options_open(const sn_option_group *const *groups, size_t n_groups, sn_options **out);
void sn_options_close(sn_options *o); /* NULL is fine */

/* The same tables with the same values. */
sn_status sn_options_copy(const sn_options *o, sn_options **out);

/* Command line, without the program and verb. Names are written with - or _; "--x value", "--x=value", "-x value"; the last
 * one counts. What follows "--", and what does not start with "-", is positional: pointers into argv, at most argc,
 * are put into `positional`. All errors are SN_ERR_USAGE and name the flag, the value and what was expected; an unknown
 * one names the nearest known. */
sn_status sn_options_read_arguments(sn_options *o, int argc, char *const *argv, const char **positional, size_t *n_positional);

/* SNUG_<KEY> of every option; an empty variable counts as unset. */
sn_status sn_options_read_environment(sn_options *o);

/* A YAML recipe: one mapping of keys to values. Errors start with file:line:column. */
sn_status sn_options_read_recipe(sn_options *o, const char *path);
sn_status sn_options_read_recipe_text(sn_options *o, const char *name, const char *text, size_t n);

/* DeepSpeed's JSON config, by the options' `deepspeed` paths. "auto" leaves an option as it is. hints: paths that are read and have no
 * effect, comma-separated ("a.b"; "a.c:none": only with this word). SN_ERR_FORMAT: no JSON; SN_ERR_USAGE: a key that is in no table, named
 * with its place. */
sn_status sn_options_read_deepspeed(sn_options *o, const char *path, const char *const *hints, size_t n_hints);
sn_status sn_options_read_deepspeed_text(sn_options *o, const char *name, const char *text, size_t n, const char *const *hints,
                                         size_t n_hints);

/* One value. `where` stands before messages ("--seed"). */
sn_status sn_options_set(sn_options *o, const char *key, const char *text, sn_provenance from, const char *where);

/* Values by key. A key that no table has, or one of another kind, is a bug (assert). An option without a value gives
 * false, 0, NULL, UINT64_MAX. Texts are valid until the option changes. */
bool sn_options_bool(const sn_options *o, const char *key); /* FLAG, SWITCH */
int64_t sn_options_int(const sn_options *o, const char *key);
double sn_options_float(const sn_options *o, const char *key);
const char *sn_options_string(const sn_options *o, const char *key); /* STRING, CHOICE */
const char *const *sn_options_list(const sn_options *o, const char *key, size_t *count);
uint64_t sn_options_bytes(const sn_options *o, const char *key);
sn_budget sn_options_budget(const sn_options *o, const char *key);

bool sn_options_has(const sn_options *o, const char *key);   /* a value, from anywhere */
bool sn_options_given(const sn_options *o, const char *key); /* a value that is not the default */
/* Whether the option's value is the one that this text stands for. */
bool sn_options_is(const sn_options *o, const char *key, const char *text);
sn_provenance sn_options_from(const sn_options *o, const char *key);

/* The i-th option of all tables; *value gets its value as a recipe would say it, nothing when unset. NULL: there are no more. */
const sn_option *sn_options_entry(const sn_options *o, size_t i, sn_str *value);

/* The help, a block a group, lines of at most `width` columns (at least 40). title: only that group; NULL: all. */
void sn_options_help(const sn_options *o, const char *title, int width, sn_str *out);

/* The options in force as a recipe that reads back to the same values; each line says where the value came from. */
void sn_options_dump(const sn_options *o, sn_str *out);

/* The nearest of n words (insertions, deletions, changes, swaps), or NULL when none is near. */
const char *sn_nearest_word(const char *word, const char *const *words, size_t n);

#endif
