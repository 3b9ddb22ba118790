/* A set of names (a hash table of byte strings), each with its number in order of adding: duplicate keys, lookups of
 * tensors by name. Zero-initialise to start. */
#ifndef SN_IO_NAMES_H
#define SN_IO_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

typedef struct sn_name_entry {
    const char *text; /* the set's own copy, NUL-terminated */
    size_t size;
    uint64_t hash;
} sn_name_entry;

typedef struct sn_names {
    sn_name_entry *items;
    size_t count, capacity;
    uint32_t *slots; /* item + 1, 0 is free; slot_count is a power of two */
    size_t slot_count;
    sn_pool pool;
} sn_names;

/* Adds a name. *index is its number; *added is false when it was there already. SN_ERR_NO_MEMORY otherwise. */
sn_status sn_names_add(sn_names *set, const char *text, size_t size, size_t *index, bool *added);

/* Number of a name; false when absent. */
bool sn_names_find(const sn_names *set, const char *text, size_t size, size_t *index);

void sn_names_free(sn_names *set);

#endif
