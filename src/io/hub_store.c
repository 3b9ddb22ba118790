#include "io/hub_store.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

static const size_t max_manifest = 16u << 20;

void sn_store_files_free(sn_store_files *f) {
    for (size_t i = 0; i < f->count; i++) sn_free(f->items[i].path);
    sn_free(f->items);
    *f = (sn_store_files){0};
}

const sn_store_file *sn_store_files_find(const sn_store_files *f, const char *path) {
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->items[i].path, path)) return &f->items[i];
    return NULL;
}

sn_status sn_store_files_put(sn_store_files *f, const char *path, uint64_t bytes, const char *sha256) {
    sn_store_file *e = (sn_store_file *)sn_store_files_find(f, path);
    if (!e) {
        SN_TRY(SN_GROW(f->items, f->count, f->capacity));
        char *copy = sn_strdup(path);
        if (!copy) return sn_fail(SN_ERR_NO_MEMORY, "cannot keep the name %s", path);
        e = &f->items[f->count++];
        *e = (sn_store_file){.path = copy};
    }
    e->bytes = bytes;
    snprintf(e->sha256, sizeof e->sha256, "%s", sha256 ? sha256 : "");
    return SN_OK;
}

bool sn_store_safe_path(const char *path) {
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.')) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)part[i] < 0x20 || part[i] == 0x7f) return false;
        part += n;
        if (!*part) return true;
    }
}

sn_status sn_store_parse_name(const char *text, char **name, char **file) {
    const char *colon = strchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : strlen(text), slashes = 0, ats = 0;
    bool good = n > 0 && n < 256 && (!colon || sn_store_safe_path(colon + 1));
    for (size_t i = 0; i < n; i++) {
        slashes += text[i] == '/';
        ats += text[i] == '@';
        good = good && (isalnum((unsigned char)text[i]) || strchr("._-/@", text[i]));
    }
    char *copy = good ? sn_strndup(text, n) : NULL;
    if (good && !copy) return sn_fail(SN_ERR_NO_MEMORY, "cannot copy a name");
    if (!good || slashes > 1 || ats > 1 || !sn_store_safe_path(copy) || copy[0] == '@' || copy[n - 1] == '@' ||
        (ats && slashes && strchr(copy, '@') < strchr(copy, '/'))) {
        sn_free(copy);
        return sn_fail(SN_ERR_USAGE, "'%s' is no model name: wanted NAME or OWNER/REPO[@REVISION], with :FILE after it if need be", text);
    }
    *name = copy;
    *file = colon ? sn_strdup(colon + 1) : NULL;
    if (!colon || *file) return SN_OK;
    sn_free(copy);
    return sn_fail(SN_ERR_NO_MEMORY, "cannot copy a name");
}

sn_status sn_store_models(char **path) {
    const char *home = getenv("SNUG_HOME"), *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    sn_str s = {0};
    *path = NULL;
    if (home && *home) sn_str_printf(&s, "%s/models", home);
    else if (cache && *cache) sn_str_printf(&s, "%s/snug/models", cache);
    else if (user && *user) sn_str_printf(&s, "%s/.cache/snug/models", user);
    else return sn_fail(SN_ERR_USAGE, "no place for models: set SNUG_HOME");
    if (s.failed) return sn_fail(SN_ERR_NO_MEMORY, "cannot name the store");
    *path = s.data;
    return SN_OK;
}

sn_status sn_store_folder(const char *name, char **path) {
    char *models;
    SN_TRY(sn_store_models(&models));
    *path = sn_path_join(models, name);
    sn_free(models);
    return *path ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot name the folder of %s", name);
}

static sn_status read_entry(const char *folder, const char *manifest, const json_t *e, sn_store_files *out) {
    const char *path = json_string_value(json_object_get(e, "path")), *sha = json_string_value(json_object_get(e, "sha256"));
    const json_t *bytes = json_object_get(e, "bytes");
    struct stat st;
    if (!path || !sn_store_safe_path(path) || !json_is_integer(bytes) || json_integer_value(bytes) < 0)
        return sn_fail(SN_ERR_FORMAT, "%s: an entry of \"files\" without a path and bytes", manifest);
    char *full = sn_path_join(folder, path);
    if (!full) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    bool there = stat(full, &st) == 0 && S_ISREG(st.st_mode) && (json_int_t)st.st_size == json_integer_value(bytes);
    sn_free(full);
    return there ? sn_store_files_put(out, path, (uint64_t)st.st_size, sha && strlen(sha) == 64 ? sha : NULL) : SN_OK;
}

sn_status sn_store_read(const char *folder, sn_store_files *out) {
    *out = (sn_store_files){0};
    char *manifest = sn_path_join(folder, "snug.json"), *text;
    size_t n, i;
    if (!manifest) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_status s = SN_OK;
    if (sn_path_exists(manifest) && (s = sn_file_read_all(manifest, max_manifest, &text, &n)) == SN_OK) {
        json_error_t error;
        json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error), *e;
        sn_free(text);
        if (!root) s = sn_fail(SN_ERR_FORMAT, "%s:%d: %s", manifest, error.line, error.text);
        else json_array_foreach(json_object_get(root, "files"), i, e) if (s == SN_OK) s = read_entry(folder, manifest, e, out);
        json_decref(root);
    }
    if (s != SN_OK) sn_store_files_free(out);
    sn_free(manifest);
    return s;
}

sn_status sn_store_write(const char *folder, const char *name, const char *source, const sn_store_files *f) {
    sn_str s = {0};
    sn_str_add(&s, "{\n  \"name\": ");
    sn_str_json(&s, name, strlen(name));
    sn_str_add(&s, ",\n  \"source\": ");
    sn_str_json(&s, source, strlen(source));
    sn_str_add(&s, ",\n  \"files\": [");
    for (size_t i = 0; i < f->count; i++) {
        sn_str_printf(&s, "%s\n    {\"path\": ", i ? "," : "");
        sn_str_json(&s, f->items[i].path, strlen(f->items[i].path));
        sn_str_printf(&s, ", \"bytes\": %llu, \"sha256\": \"%s\"}", (unsigned long long)f->items[i].bytes, f->items[i].sha256);
    }
    sn_str_add(&s, "\n  ]\n}\n");
    char *manifest = sn_path_join(folder, "snug.json");
    sn_status status =
        s.failed || !manifest ? sn_fail(SN_ERR_NO_MEMORY, "cannot write the list of %s", name) : sn_file_replace(manifest, s.data, s.size);
    sn_free(manifest);
    sn_str_free(&s);
    return status;
}

bool sn_store_name_has_word(const char *path, const char *word) {
    const char *slash = strrchr(path, '/');
    size_t n = strlen(word);
    const char *name = slash ? slash + 1 : path;
    for (const char *p = name; n && *p; p++) {
        if (strncasecmp(p, word, n)) continue;
        bool left = p == name || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (left && !(isalnum((unsigned char)p[n]) || p[n] == '_')) return true;
    }
    return false;
}
