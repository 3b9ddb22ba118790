/* One option table drives flags, environment, recipe files, help and the search.
 *
 * An option is a row of a table owned by the file that reads it (a pass, the engine). Its key is the field's name
 * ("learning_rate"); the flag is the key with dashes ("--learning-rate"); the environment variable SNUG_LEARNING_RATE;
 * the YAML key learning_rate. Values come, each over the one before, from: default, recipe file, environment, command
 * line. */
#ifndef SN_IO_OPTIONS_H
#define SN_IO_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef enum sn_option_kind {
    SN_OPTION_SWITCH, /* --name, --name on|off; default off unless default_text says on */
    SN_OPTION_INT,
    SN_OPTION_FLOAT,
    SN_OPTION_STRING,
    SN_OPTION_CHOICE, /* one of `choices` */
    SN_OPTION_BYTES,  /* 8GiB, 700MiB, 123 */
    SN_OPTION_MEMORY  /* bytes, or device=24GiB,host=64GiB,disk=500GiB */
} sn_option_kind;

typedef struct sn_option {
    const char *key;     /* NULL ends a table */
    const char *aliases; /* other keys, comma-separated; one letter is a short flag: "c,ctx_size" */
    sn_option_kind kind;
    const char *choices; /* "adamw|sgd" */
    const char *default_text;
    const char *metavar; /* in help: "N", "DIR" */
    const char *help;
} sn_option;

typedef struct sn_options sn_options;

sn_status sn_options_new(sn_options **out);
void sn_options_free(sn_options *o);

/* Adds a table (kept by reference, not copied) under a heading for help. A key or alias that is there already is SN_ERR_INTERNAL. */
sn_status sn_options_add(sn_options *o, const char *heading, const sn_option *table);

/* Sets one value from text; `where` stands in errors ("--learning-rate", "recipe.yaml:3:1"). Unknown keys are SN_ERR_USAGE
 * with the nearest known one; bad values name key, value and what was expected. */
sn_status sn_options_set(sn_options *o, const char *key, const char *value, const char *where);

/* Reads a YAML mapping of keys to scalars (and lists of scalars, joined with commas). */
sn_status sn_options_read_yaml(sn_options *o, const char *path);
sn_status sn_options_read_environment(sn_options *o); /* SNUG_<KEY> */

/* Parses argv[first ..]: --key value, --key=value, - and _ alike, switches without value; words that are no flags go to
 * `words` (at most max_words). Values set here win over recipe and environment whatever the order of calls. */
sn_status sn_options_parse(sn_options *o, int argc, char **argv, int first, const char **words, int max_words, int *n_words);

bool sn_options_is_set(const sn_options *o, const char *key);     /* given by someone, not the default */
const char *sn_options_text(const sn_options *o, const char *key); /* "" when there is neither value nor default */
bool sn_options_on(const sn_options *o, const char *key);          /* false for an unknown key */
int64_t sn_options_int(const sn_options *o, const char *key);
double sn_options_float(const sn_options *o, const char *key);
uint64_t sn_options_bytes(const sn_options *o, const char *key);

/* device=..,host=..,disk=..: UINT64_MAX where not given; a bare number is `bare`. */
typedef struct sn_memory {
    uint64_t bare, device, host, disk;
} sn_memory;
sn_status sn_options_memory(const sn_options *o, const char *key, sn_memory *out);
bool sn_parse_bytes(const char *text, uint64_t *out);

void sn_options_help(const sn_options *o, sn_str *out);
void sn_options_yaml(const sn_options *o, sn_str *out); /* every option with its effective value */

#endif
