#include "io/hub.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/hub_source.h"
#include "io/hub_store.h"
#include "io/registry.h"

static char *copy_joined(const char *folder, const char *name) { return name ? sn_path_join(folder, name) : sn_strdup(folder); }

/* The file or folder that stands for a model with these files; file: what the user wrote after the colon, or NULL. */
static sn_status path_of(const char *name, const char *file, const char *folder, const sn_store_files *files, char **path) {
    sn_str list = {0};
    const char *chosen = NULL;
    size_t matches = 0;
    for (size_t i = 0; i < files->count; i++) {
        const char *f = files->items[i].path;
        bool match = !file || !strcmp(f, file) || sn_store_name_has_word(f, file);
        sn_str_printf(&list, "%s%s", i ? ", " : "", f);
        /* Of a split GGUF the first part is the name of all. */
        if (match && !(chosen && strstr(f, "-of-") && !strstr(f, "-00001-of-"))) chosen = f;
        if (match && !(strstr(f, "-of-") && !strstr(f, "-00001-of-"))) matches++;
    }
    sn_status s = SN_OK;
    *path = NULL;
    if (!file && sn_store_files_find(files, "config.json")) *path = copy_joined(folder, NULL);
    else if (matches == 1) *path = copy_joined(folder, chosen);
    else
        s = sn_fail(SN_ERR_USAGE, "%s: %s %s; it has: %.600s", name, matches ? "several files answer to" : "no file", file ? file : name,
                    list.data ? list.data : "nothing");
    if (s == SN_OK && !*path) s = sn_fail(SN_ERR_NO_MEMORY, "cannot name the file of %s", name);
    sn_str_free(&list);
    return s;
}

static sn_status unknown_name(const char *name) {
    sn_str known = {0};
    for (size_t i = 0; i < sn_registry_count; i++) sn_str_printf(&known, "%s%s", i ? ", " : "", sn_registry[i].name);
    sn_status s = sn_fail(SN_ERR_USAGE, "no model is known as %s: pull one of %s, a repository OWNER/REPO, or name a file with --from",
                          name, known.data ? known.data : "");
    sn_str_free(&known);
    return s;
}

static sn_status pull_registered(const sn_puller *p) {
    sn_status s = SN_ERR_INTERNAL;
    for (int i = 0; i < p->entry->n_sources; i++) {
        if (i) sn_warn("%s; trying the next source", sn_error_text());
        s = sn_source_registered(p, &p->entry->sources[i]);
        if (s == SN_OK || s == SN_ERR_INTERRUPTED || s == SN_ERR_FILE || s == SN_ERR_NO_MEMORY || sn_hub_offline()) break;
    }
    return s;
}

static sn_status pull_repository(const sn_puller *p, const char *name, const char *file) {
    const char *at = strchr(name, '@');
    char *repo = sn_strndup(name, at ? (size_t)(at - name) : strlen(name));
    if (!repo) return sn_fail(SN_ERR_NO_MEMORY, "cannot copy a name");
    sn_status s = sn_source_repository(p, repo, at ? at + 1 : "main", file);
    sn_free(repo);
    return s;
}

static bool is_url(const char *text) { return !strncmp(text, "http://", 7) || !strncmp(text, "https://", 8); }

/* Brings what is missing. *source receives what snug.json says about where the files came from. */
static sn_status bring(const sn_puller *p, const char *name, const char *file, const char **source) {
    const char *from = p->options->from;
    *source = from ? from : name;
    if (from) return is_url(from) ? sn_source_url(p, from) : sn_source_local(p, from);
    const sn_store_file *f = p->entry ? sn_store_files_find(p->files, p->entry->file) : NULL;
    if (f && f->bytes == p->entry->bytes && !strcmp(f->sha256, p->entry->sha256)) return SN_OK;
    if (p->entry) return pull_registered(p);
    if (p->files->count && (sn_hub_offline() || !strchr(name, '/'))) return SN_OK;
    return strchr(name, '/') ? pull_repository(p, name, file) : unknown_name(name);
}

sn_status sn_hub_pull(const char *text, const sn_pull *o, char **path) {
    static const sn_pull plain;
    char *name = NULL, *file = NULL, *folder = NULL;
    sn_store_files files = {0};
    const char *source;
    *path = NULL;
    SN_TRY(sn_store_parse_name(text, &name, &file));
    sn_puller p = {.options = o ? o : &plain, .entry = sn_registry_find(name), .files = &files};
    sn_status s = sn_store_folder(name, &folder);
    if (s == SN_OK && !p.entry && !p.options->from && !strchr(name, '/') && !sn_path_exists(folder)) s = unknown_name(name);
    if (s == SN_OK) s = sn_make_dirs(folder);
    if (s == SN_OK) s = sn_store_read(folder, &files);
    p.folder = folder;
    if (s == SN_OK) s = bring(&p, name, file, &source);
    if (s == SN_OK) s = sn_store_write(folder, name, source, &files);
    if (s == SN_OK) s = path_of(name, file, folder, &files, path);
    sn_store_files_free(&files);
    sn_free(folder);
    sn_free(file);
    sn_free(name);
    return s;
}

/* A snapshot in the cache of the Hub's Python client: models--OWNER--REPO/refs/REVISION holds the commit whose files
 * lie in snapshots/COMMIT. *path stays NULL when there is none. */
static sn_status find_in_hub_cache(const char *name, const char *file, char **path) {
    const char *cache = getenv("HF_HUB_CACHE"), *hf = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    const char *slash = strchr(name, '/'), *at = strchr(name, '@');
    sn_str folder = {0}, ref = {0};
    if (!slash) return SN_OK;
    if (cache && *cache) sn_str_add(&folder, cache);
    else if (hf && *hf) sn_str_printf(&folder, "%s/hub", hf);
    else if (xdg && *xdg) sn_str_printf(&folder, "%s/huggingface/hub", xdg);
    else sn_str_printf(&folder, "%s/.cache/huggingface/hub", user ? user : "");
    sn_str_printf(&folder, "/models--%.*s--%.*s", (int)(slash - name), name, (int)(at ? at - slash - 1 : (long)strlen(slash + 1)),
                  slash + 1);
    sn_str_printf(&ref, "%s/refs/%s", folder.data ? folder.data : "", at ? at + 1 : "main");
    char *commit = NULL;
    size_t n;
    sn_status s = folder.failed || ref.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot name a cache folder") : SN_OK;
    if (s == SN_OK && sn_path_exists(ref.data)) s = sn_file_read_all(ref.data, 200, &commit, &n);
    if (s == SN_OK && (commit || at)) {
        sn_str_printf(&folder, "/snapshots/%.*s", commit ? (int)strcspn(commit, "\r\n") : 200, commit ? commit : at + 1);
        sn_str_printf(&folder, "/%s", file ? file : "config.json");
        if (!folder.failed && sn_path_exists(folder.data)) {
            if (!file) *strrchr(folder.data, '/') = 0;
            *path = sn_strdup(folder.data);
            if (!*path) s = sn_fail(SN_ERR_NO_MEMORY, "cannot copy a path");
        }
    }
    sn_free(commit);
    sn_str_free(&ref);
    sn_str_free(&folder);
    return s;
}

sn_status sn_hub_resolve(const char *text, char **path) {
    char *name = NULL, *file = NULL, *folder = NULL;
    sn_store_files files = {0};
    *path = NULL;
    if (sn_path_exists(text)) {
        *path = sn_strdup(text);
        return *path ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot copy a path");
    }
    if (sn_store_parse_name(text, &name, &file) != SN_OK)
        return sn_fail(SN_ERR_USAGE, "%s: no such file or folder, and no model's name", text);
    sn_status s = sn_store_folder(name, &folder);
    if (s == SN_OK) s = sn_store_read(folder, &files);
    if (s == SN_OK && files.count) s = path_of(name, file, folder, &files, path);
    else if (s == SN_OK) s = find_in_hub_cache(name, file, path);
    if (s == SN_OK && !*path)
        s = strchr(name, '/') || sn_registry_find(name)
                ? sn_fail(SN_ERR_USAGE, "%s: no such file, and no model of this name was pulled; to fetch it: snug pull %s", text, text)
                : sn_fail(SN_ERR_USAGE, "%s: no such file, and no model of this name; snug list shows those that can be pulled", text);
    sn_store_files_free(&files);
    sn_free(folder);
    sn_free(file);
    sn_free(name);
    return s;
}

/* ---- Listing ---- */

typedef struct list {
    sn_hub_model *items;
    size_t count, capacity;
} list;

static sn_status list_add(list *l, const char *name, const char *path, const char *about, uint64_t bytes) {
    SN_TRY(SN_GROW(l->items, l->count, l->capacity));
    sn_hub_model m = {sn_strdup(name), path ? sn_strdup(path) : NULL, about, bytes};
    l->items[l->count++] = m;
    return m.name && (!path || m.path) ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot keep a name");
}

/* Enters the pulled model in `folder`, or looks one level deeper for OWNER/REPO. */
static sn_status list_folder(list *l, const char *folder, const char *name, int depth) {
    sn_store_files files;
    SN_TRY(sn_store_read(folder, &files));
    const sn_registry_entry *e = sn_registry_find(name);
    uint64_t bytes = 0;
    for (size_t i = 0; i < files.count; i++) bytes += files.items[i].bytes;
    const char *one = files.count == 1 ? files.items[0].path : NULL;
    char *path = files.count ? copy_joined(folder, one) : NULL;
    sn_status s = SN_OK;
    if (files.count) s = path ? list_add(l, name, path, e ? e->about : "", bytes) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_free(path);
    DIR *dir = files.count || depth == 2 ? NULL : opendir(folder);
    sn_store_files_free(&files);
    for (struct dirent *d; dir && s == SN_OK && (d = readdir(dir));) {
        if (d->d_name[0] == '.') continue;
        char *child = sn_path_join(folder, d->d_name), *longer = *name ? sn_path_join(name, d->d_name) : sn_strdup(d->d_name);
        if (!child || !longer) s = sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
        else if (sn_path_is_dir(child)) s = list_folder(l, child, longer, depth + 1);
        sn_free(child);
        sn_free(longer);
    }
    if (dir) closedir(dir);
    return s;
}

static int by_name(const void *a, const void *b) { return strcmp(((const sn_hub_model *)a)->name, ((const sn_hub_model *)b)->name); }

sn_status sn_hub_list(sn_hub_model **models, size_t *count) {
    list l = {0};
    char *folder;
    *models = NULL;
    *count = 0;
    SN_TRY(sn_store_models(&folder));
    sn_status s = list_folder(&l, folder, "", 0);
    size_t pulled = l.count;
    for (size_t i = 0; s == SN_OK && i < sn_registry_count; i++) {
        bool there = false;
        for (size_t k = 0; k < pulled; k++) there = there || !strcmp(l.items[k].name, sn_registry[i].name);
        if (!there) s = list_add(&l, sn_registry[i].name, NULL, sn_registry[i].about, sn_registry[i].bytes);
    }
    sn_free(folder);
    if (s != SN_OK) sn_hub_list_free(l.items, l.count);
    else {
        qsort(l.items, l.count, sizeof *l.items, by_name);
        *models = l.items;
        *count = l.count;
    }
    return s;
}

void sn_hub_list_free(sn_hub_model *models, size_t count) {
    for (size_t i = 0; i < count; i++) {
        sn_free(models[i].name);
        sn_free(models[i].path);
    }
    sn_free(models);
}

sn_status sn_hub_remove(const char *text) {
    char *name, *file, *folder = NULL;
    SN_TRY(sn_store_parse_name(text, &name, &file));
    sn_status s = sn_store_folder(name, &folder);
    char *manifest = s == SN_OK ? sn_path_join(folder, "snug.json") : NULL;
    if (s == SN_OK && !manifest) s = sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    if (s == SN_OK && file) s = sn_fail(SN_ERR_USAGE, "%s: a model is removed whole; leave out :%s", text, file);
    if (s == SN_OK && !sn_path_exists(manifest)) s = sn_fail(SN_ERR_USAGE, "%s: no model of this name was pulled", text);
    if (s == SN_OK) s = sn_remove_tree(folder);
    sn_free(manifest);
    sn_free(folder);
    sn_free(file);
    sn_free(name);
    return s;
}
