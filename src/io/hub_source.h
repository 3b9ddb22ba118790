/* Where a model's files come from. Internal to hub*.c. */
#ifndef SN_IO_HUB_SOURCE_H
#define SN_IO_HUB_SOURCE_H

#include "io/hub.h"
#include "io/hub_store.h"
#include "io/registry.h"

/* One pull: files are brought into `folder`, which exists, and entered into `files`. */
typedef struct sn_puller {
    const sn_pull *options;
    const char *folder;
    const sn_registry_entry *entry; /* NULL: not one of the registry's */
    sn_store_files *files;
} sn_puller;

/* A local GGUF file (copied) or zip archive (its GGUF member unpacked). */
sn_status sn_source_local(const sn_puller *p, const char *path);

/* The URL of such a file. */
sn_status sn_source_url(const sn_puller *p, const char *url);

/* A source of the registry. */
sn_status sn_source_registered(const sn_puller *p, const sn_source *source);

/* A repository of the Hub at a revision. file: a path in it, or a word of its GGUF files' names (the quantisation);
 * NULL: the safetensors model with its configuration and tokenizer, or its only GGUF file. */
sn_status sn_source_repository(const sn_puller *p, const char *repo, const char *revision, const char *file);

/* Fetches a URL into the file `name` of the model's folder; arguments as in sn_fetch_job. */
sn_status sn_source_fetch(const sn_puller *p, const char *url, const char *name, const char *token, uint64_t bytes, const char *sha256);

/* Whether HF_HUB_OFFLINE forbids the network, and the error that says so about `what`. */
bool sn_hub_offline(void);
sn_status sn_hub_need_network(const char *what);

/* SN_ERR_FILE when the store's disk has fewer free bytes. */
sn_status sn_hub_need_space(const sn_puller *p, uint64_t bytes);

#endif
