/* The inside of the option store. Internal to options*.c. */
#ifndef SN_IO_OPTIONS_STORE_H
#define SN_IO_OPTIONS_STORE_H

#include "io/options.h"

typedef struct sn_option_value {
    bool set;
    sn_provenance from;
    char *text; /* as given; of a list: its items joined by "," */
    bool truth;
    int64_t integer;
    double number;
    sn_budget budget; /* BYTES: bare */
    char **items;
    size_t count, capacity;
} sn_option_value;

typedef struct sn_option_slot {
    const sn_option *option;
    const sn_option_group *group;
    sn_option_value value;
} sn_option_slot;

struct sn_options {
    sn_option_slot *slots;
    size_t count;
    const sn_option_group *const *groups;
    size_t n_groups;
};

/* Parses text into *v, whose former contents are released or, for a list with append, kept. SN_ERR_USAGE:
 * "WHERE: 'TEXT' is no size; wanted ...". On failure *v is unchanged. */
sn_status sn_option_parse(const sn_option *o, const char *text, bool append, const char *where, sn_option_value *v);
void sn_option_value_free(sn_option_value *v);

/* What the option accepts, in words: "an integer of at least 1". */
void sn_option_wanted(const sn_option *o, sn_str *out);

/* By key, or NULL. */
sn_option_slot *sn_options_find(const sn_options *o, const char *key);

/* By key or by an alias longer than a letter, - and _ alike; *implied as in sn_option's aliases, or NULL. */
sn_option_slot *sn_options_resolve(const sn_options *o, const char *key, const char **implied);

/* Sets a slot from the text of one of its names: the value itself, or whether the implied one holds. */
sn_status sn_option_slot_set_named(sn_option_slot *slot, const char *implied, const char *text, sn_provenance from, const char *where);

/* Sets a slot unless something of higher rank is there. */
sn_status sn_option_slot_set(sn_option_slot *slot, const char *text, bool append, sn_provenance from, const char *where);

/* " (did you mean PREFIX...?)" for an unknown key or flag, or nothing. */
void sn_options_suggest(const sn_options *o, const char *word, bool flags, sn_str *out);

#endif
