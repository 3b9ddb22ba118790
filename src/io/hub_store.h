/* The store's folders and each model's snug.json. Internal to hub*.c. */
#ifndef SN_IO_HUB_STORE_H
#define SN_IO_HUB_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sn_store_file {
    char *path; /* below the model's folder */
    uint64_t bytes;
    char sha256[65]; /* "" while unknown */
} sn_store_file;

typedef struct sn_store_files {
    sn_store_file *items;
    size_t count, capacity;
} sn_store_files;

void sn_store_files_free(sn_store_files *f);
/* Adds or replaces the entry of this path. sha256 may be NULL. */
sn_status sn_store_files_put(sn_store_files *f, const char *path, uint64_t bytes, const char *sha256);
const sn_store_file *sn_store_files_find(const sn_store_files *f, const char *path);

/* NAME[:FILE]: letters, digits and "._-" in at most two parts, a revision after "@". *file receives what follows the
 * colon, or NULL. Both are sn_freed. SN_ERR_USAGE for anything else, so that a name is always a safe path. */
sn_status sn_store_parse_name(const char *text, char **name, char **file);

/* A relative path without empty, "." and ".." parts: safe to create below a folder. */
bool sn_store_safe_path(const char *path);

sn_status sn_store_models(char **path); /* the folder models/ */
sn_status sn_store_folder(const char *name, char **path);

/* The files that snug.json lists and that are there with their sizes; none when there is no snug.json. */
sn_status sn_store_read(const char *folder, sn_store_files *out);
sn_status sn_store_write(const char *folder, const char *name, const char *source, const sn_store_files *f);

/* Whether `word` stands in a file name between characters that are no letters, digits or "_", ignoring case. */
bool sn_store_name_has_word(const char *path, const char *word);

#endif
