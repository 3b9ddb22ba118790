/* Repositories of the Hugging Face Hub.
 *
 * Source: the Hub's HTTP API. {endpoint}/api/models/{repo}/tree/{revision}?recursive=true lists the files (a large
 * file's `lfs.oid` is its SHA-256), in pages; {endpoint}/{repo}/resolve/{revision}/{path} gives one. */
#include "io/hub_source.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/fetch.h"

enum { MAX_PAGES = 1000 };
static const size_t max_page = 64u << 20;

static void add_endpoint(sn_str *url) {
    const char *endpoint = getenv("HF_ENDPOINT");
    sn_str_add(url, endpoint && *endpoint ? endpoint : "https://huggingface.co");
    while (url->size && url->data[url->size - 1] == '/') url->data[--url->size] = 0;
}

static const char *hub_token(void) {
    const char *token = getenv("HF_TOKEN");
    return token && *token ? token : NULL;
}

static sn_status fetch_one(const sn_puller *p, const char *repo, const char *revision, const sn_store_file *f, const char *name) {
    sn_str url = {0};
    add_endpoint(&url);
    sn_str_printf(&url, "/%s/resolve/", repo);
    sn_url_escape(&url, revision, "");
    sn_str_char(&url, '/');
    sn_url_escape(&url, f->path, "/");
    sn_status s = url.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot name the URL of %s", f->path)
                             : sn_source_fetch(p, url.data, name, hub_token(), f->bytes, f->sha256[0] ? f->sha256 : NULL);
    sn_str_free(&url);
    return s;
}

/* Enters one page's files into the list. */
static sn_status read_page(const char *url, const sn_str *page, sn_store_files *all) {
    json_error_t error;
    size_t i;
    json_t *root = json_loadb(page->data ? page->data : "", page->size, 0, &error), *e;
    if (!json_is_array(root)) {
        json_decref(root);
        return sn_fail(SN_ERR_NETWORK, "%s: not the list of files that was asked for%s%s", url, root ? "" : ": ", root ? "" : error.text);
    }
    sn_status s = SN_OK;
    json_array_foreach(root, i, e) {
        const char *type = json_string_value(json_object_get(e, "type")), *path = json_string_value(json_object_get(e, "path"));
        const json_t *lfs = json_object_get(e, "lfs"), *size = json_object_get(lfs ? lfs : e, "size");
        const char *sha = lfs ? json_string_value(json_object_get(lfs, "oid")) : NULL;
        if (s != SN_OK || !type || strcmp(type, "file")) continue;
        if (!path || !sn_store_safe_path(path) || !json_is_integer(size) || json_integer_value(size) < 0 ||
            (lfs && (!sha || strlen(sha) != 64)))
            s = sn_fail(SN_ERR_NETWORK, "%s: unusable entry %zu (%s)", url, i, path ? path : "no path");
        else s = sn_store_files_put(all, path, (uint64_t)json_integer_value(size), sha);
    }
    json_decref(root);
    return s;
}

static sn_status list_files(const sn_puller *p, const char *repo, const char *revision, sn_store_files *all) {
    sn_str first = {0}, page = {0};
    add_endpoint(&first);
    sn_str_printf(&first, "/api/models/%s/tree/", repo);
    sn_url_escape(&first, revision, "");
    sn_str_add(&first, "?recursive=true");
    char *url = first.failed ? NULL : sn_strdup(first.data);
    sn_status s = url ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot name the URL of %s", repo);
    for (int i = 0; s == SN_OK && url && i < MAX_PAGES; i++) {
        char *next = NULL;
        sn_fetch_job job = {.url = url, .token = hub_token(), .tries = p->options->tries, .backoff_ms = p->options->backoff_ms};
        sn_str_clear(&page);
        s = sn_fetch_text(&job, max_page, &page, &next);
        /* Later pages are asked for with the token, so they have to be the same server's. */
        if (s == SN_OK && next && strncmp(next, first.data, strcspn(first.data, "?")))
            s = sn_fail(SN_ERR_NETWORK, "%s: the next page is elsewhere: %s", url, next);
        if (s == SN_OK) s = read_page(url, &page, all);
        sn_free(url);
        url = next;
    }
    sn_free(url);
    sn_str_free(&first);
    sn_str_free(&page);
    return s;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcasecmp(s + n - m, end);
}

/* What belongs to a safetensors model: everything at the top that transformers would read. */
static bool belongs_to_model(const char *path) {
    static const char *const ends[] = {".safetensors", ".json", ".jinja", ".model", "merges.txt", "vocab.txt"};
    if (strchr(path, '/') || !strncmp(path, "consolidated", 12)) return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(path, ends[i])) return true;
    return false;
}

static sn_status choose(const char *repo, const char *file, const sn_store_files *all, sn_store_files *chosen) {
    const sn_store_file *exact = file ? sn_store_files_find(all, file) : NULL;
    sn_str offered = {0};
    bool safetensors = false;
    size_t ggufs = 0;
    for (size_t i = 0; i < all->count; i++) {
        safetensors = safetensors || (ends_with(all->items[i].path, ".safetensors") && belongs_to_model(all->items[i].path));
        if (!ends_with(all->items[i].path, ".gguf")) continue;
        sn_str_printf(&offered, "%s%s", ggufs++ ? ", " : "", all->items[i].path);
    }
    sn_status s = SN_OK;
    for (size_t i = 0; s == SN_OK && i < all->count; i++) {
        const sn_store_file *f = &all->items[i];
        bool gguf = ends_with(f->path, ".gguf");
        bool take = exact         ? f == exact
                    : file        ? gguf && sn_store_name_has_word(f->path, file)
                    : safetensors ? belongs_to_model(f->path)
                                  : gguf && ggufs == 1;
        if (take) s = sn_store_files_put(chosen, f->path, f->bytes, f->sha256);
    }
    const char *list = offered.data ? offered.data : "none";
    if (s == SN_OK && !chosen->count && file) s = sn_fail(SN_ERR_USAGE, "%s has no file %s; its GGUF files: %.600s", repo, file, list);
    if (s == SN_OK && !chosen->count && ggufs)
        s = sn_fail(SN_ERR_USAGE, "%s has %zu GGUF files; say which with %s:FILE: %.600s", repo, ggufs, repo, list);
    if (s == SN_OK && !chosen->count) s = sn_fail(SN_ERR_UNSUPPORTED, "%s has neither safetensors nor GGUF files", repo);
    sn_str_free(&offered);
    return s;
}

/* Whether the file lies in the store already, by the list of an earlier pull or by its own hash. A file without a
 * SHA-256 (a small one, kept in git) is fetched again: its size alone says nothing. */
static bool have(const sn_puller *p, const sn_store_file *f) {
    const sn_store_file *listed = sn_store_files_find(p->files, f->path);
    if (!f->sha256[0]) return false;
    if (listed) return listed->bytes == f->bytes && !strcmp(listed->sha256, f->sha256);
    char *path = sn_path_join(p->folder, f->path), hex[65];
    bool same = path && sn_path_exists(path) && sn_sha256_file(path, hex) == SN_OK && !strcmp(hex, f->sha256);
    sn_free(path);
    return same;
}

sn_status sn_source_repository(const sn_puller *p, const char *repo, const char *revision, const char *file) {
    SN_TRY(sn_hub_need_network(repo));
    if (p->entry) { /* size and hash are known: no list is needed */
        sn_store_file f = {.path = (char *)file, .bytes = p->entry->bytes};
        memcpy(f.sha256, p->entry->sha256, sizeof f.sha256);
        SN_TRY(sn_hub_need_space(p, f.bytes));
        SN_TRY(fetch_one(p, repo, revision, &f, p->entry->file));
        return sn_store_files_put(p->files, p->entry->file, f.bytes, f.sha256);
    }
    sn_store_files all = {0}, chosen = {0};
    sn_status s = list_files(p, repo, revision, &all);
    if (s == SN_OK) s = choose(repo, file, &all, &chosen);
    uint64_t bytes = 0;
    for (size_t i = 0; s == SN_OK && i < chosen.count; i++)
        if (!have(p, &chosen.items[i]) && __builtin_add_overflow(bytes, chosen.items[i].bytes, &bytes)) bytes = UINT64_MAX;
    if (s == SN_OK) s = sn_hub_need_space(p, bytes);
    for (size_t i = 0; s == SN_OK && i < chosen.count; i++) {
        const sn_store_file *f = &chosen.items[i];
        if (!have(p, f)) s = fetch_one(p, repo, revision, f, f->path);
        if (s == SN_OK) s = sn_store_files_put(p->files, f->path, f->bytes, f->sha256);
    }
    sn_store_files_free(&all);
    sn_store_files_free(&chosen);
    return s;
}
