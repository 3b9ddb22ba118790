/* Opening models and what stands in the store. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/mem.h"
#include "io/hub.h"

snug_status snug_model_open(const char *name, snug_model **out) {
    snug_model *m = sn_alloc_zero(1, sizeof *m);
    if (!m) return (snug_status)sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a model");
    sn_status s = sn_model_open(name, &m->model);
    if (s == SN_OK) *out = m;
    else sn_free(m);
    return (snug_status)s;
}

void snug_model_close(snug_model *m) {
    if (!m) return;
    sn_model_close(&m->model);
    sn_free(m);
}

sn_status sn_need_tokenizer(const sn_model *m) {
    return m->tokenizer ? SN_OK : sn_fail(SN_ERR_UNSUPPORTED, "%s has no tokenizer", m->path);
}

sn_status sn_need_weights(const sn_model *m) {
    return m->has_weights ? SN_OK : sn_fail(SN_ERR_UNSUPPORTED, "%s has no weights: it can be planned and explained only", m->path);
}

snug_status snug_pull(const char *name, const char *from, snug_progress_fn progress, void *context, char **path) {
    sn_pull o = {.from = from, .progress = progress, .context = context};
    char *where = NULL;
    sn_status s = sn_hub_pull(name, &o, &where);
    if (s == SN_OK && from) { /* a file that nobody vouches for: it must open, or it does not stay */
        sn_model m;
        s = sn_model_open(where, &m);
        if (s == SN_OK) {
            sn_model_close(&m);
        } else {
            char why[512];
            snprintf(why, sizeof why, "%s", sn_error_text());
            sn_hub_remove(name);
            sn_fail(s, "%s", why); /* not what removing said */
        }
    }
    if (s == SN_OK && path) *path = where;
    else sn_free(where);
    return (snug_status)s;
}

snug_status snug_remove(const char *name) { return (snug_status)sn_hub_remove(name); }

snug_status snug_list(snug_listed **models, size_t *count) {
    sn_hub_model *found;
    size_t n, bytes = 0;
    sn_status s = sn_hub_list(&found, &n);
    if (s != SN_OK) return (snug_status)s;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(found[i].name) + strlen(found[i].about) + (found[i].path ? strlen(found[i].path) : 0) + 3;
    snug_listed *list = sn_alloc(n * sizeof *list + bytes + 1);
    char *at = (char *)(list + n);
    for (size_t i = 0; list && i < n; i++) {
        const char *texts[3] = {found[i].name, found[i].path, found[i].about}, *copies[3] = {0};
        for (int k = 0; k < 3; k++) {
            if (!texts[k]) continue;
            copies[k] = strcpy(at, texts[k]);
            at += strlen(at) + 1;
        }
        list[i] = (snug_listed){copies[0], copies[1], copies[2], found[i].bytes};
    }
    sn_hub_list_free(found, n);
    if (!list) return (snug_status)sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a list of %zu models", n);
    *models = list;
    *count = n;
    return SNUG_OK;
}
