/* The index of a data file: built streaming, checked whole when opened, read an entry at a time. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/dataset_impl.h"

enum { BLOCK = 4096 }; /* entries at a time */

static const char magic[8] = "SNUGIDX1";

static uint64_t mix(uint64_t h, const void *data, size_t n) { /* n a multiple of 8; for damage, not for malice */
    const char *p = data;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return h;
}

static uint64_t header_hash(const sn_index_header *h) { return mix(1, h, offsetof(sn_index_header, header_hash)); }

static sn_status hash_data(const sn_dataset *d, char out[64]) {
    enum { END = 64 << 10 };
    char *buffer = sn_alloc(END), hex[65];
    if (!buffer) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a read buffer", d->path);
    size_t n = d->file_size < END ? (size_t)d->file_size : END;
    sn_sha256 h;
    sn_sha256_start(&h);
    sn_status s = sn_file_read_at(d->fd, d->path, 0, buffer, n);
    sn_sha256_add(&h, buffer, n);
    if (s == SN_OK) s = sn_file_read_at(d->fd, d->path, d->file_size - n, buffer, n);
    sn_sha256_add(&h, buffer, n);
    sn_sha256_end(&h, hex);
    memcpy(out, hex, 64);
    sn_free(buffer);
    return s;
}

static void hash_settings(const sn_dataset *d, char out[64]) {
    const sn_dataset_options *o = &d->o;
    const char *texts[] = {o->chat_template ? sn_chat_template_hash(o->chat_template) : NULL, o->bos_token, o->eos_token};
    int64_t numbers[] = {o->cutoff_len, o->escape_special, o->encoder->bos, o->encoder->eos, (int64_t)o->encoder->fingerprint};
    char hex[65];
    sn_sha256 h;
    sn_sha256_start(&h);
    sn_sha256_add(&h, numbers, sizeof numbers);
    for (int i = 0; i < 3; i++) {
        size_t n = texts[i] ? strlen(texts[i]) : SIZE_MAX;
        sn_sha256_add(&h, &n, sizeof n);
        if (texts[i]) sn_sha256_add(&h, texts[i], n);
    }
    sn_sha256_end(&h, hex);
    memcpy(out, hex, 64);
}

/* What the header of a sound index of this data says; counts and hashes of entries are still zero. */
static sn_status expected(const sn_dataset *d, sn_index_header *h) {
    struct stat st;
    sn_file_kind kind;
    *h = (sn_index_header){0};
    if (fstat(d->fd, &st)) return sn_fail(SN_ERR_FILE, "cannot look at %s", d->path);
    memcpy(h->magic, magic, sizeof magic);
    h->data_size = d->file_size;
    h->data_time = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    SN_TRY(sn_file_kind_of(d->path, d->fd, d->file_size, &kind));
    h->kind = kind;
    hash_settings(d, h->settings_hash);
    return hash_data(d, h->data_hash);
}

/* The chunk of a plain text: small enough that reading one window wastes little, large enough to tokenize well. */
static size_t chunk_bytes(const sn_dataset *d) {
    int64_t n = d->o.cutoff_len * 4;
    return n < 4096 ? 4096 : n > (1 << 20) ? 1 << 20 : (size_t)n;
}

typedef struct writer {
    sn_dataset *d;
    const char *path;
    int fd;
    sn_index_entry *block;
    size_t count;
} writer;

static sn_status flush(writer *w) {
    sn_index_header *h = &w->d->header;
    size_t n = w->count * sizeof *w->block;
    uint64_t at = sizeof *h + (h->entries - w->count) * sizeof *w->block;
    h->entries_hash = mix(h->entries_hash, w->block, n);
    w->count = 0;
    return sn_file_write_at(w->fd, w->path, at, w->block, n);
}

static sn_status add_row(writer *w, const sn_counted_row *r) {
    sn_index_header *h = &w->d->header;
    h->seen++;
    h->empty += r->outcome == SN_ROW_EMPTY;
    h->no_loss += r->outcome == SN_ROW_NO_LOSS;
    if (r->outcome != SN_ROW_USED) return SN_OK;
    h->truncated += r->truncated;
    w->block[w->count++] =
        (sn_index_entry){r->offset, h->tokens, (uint32_t)r->size, (uint32_t)r->tokens, (uint32_t)r->labels, (uint32_t)r->line};
    h->entries++;
    h->tokens += r->tokens;
    h->labels += r->labels;
    return w->count == BLOCK ? flush(w) : SN_OK;
}

static sn_status write_entries(writer *w) {
    sn_row_reader r;
    sn_row_counter *counter = NULL;
    sn_counted_row *rows;
    size_t n = 1;
    sn_status s = sn_rows_start(&r, w->d->path, w->d->fd, w->d->file_size, chunk_bytes(w->d));
    if (s == SN_OK) s = sn_counter_open(w->d, &counter);
    while (s == SN_OK && n) {
        s = sn_counter_next(counter, &r, &rows, &n);
        for (size_t i = 0; i < n && s == SN_OK; i++) s = add_row(w, &rows[i]);
    }
    if (s == SN_OK) s = flush(w);
    sn_rows_end(&r);
    sn_counter_close(counter);
    return s;
}

static sn_status build(sn_dataset *d) {
    sn_index_header *h = &d->header;
    sn_str path = {0};
    SN_TRY(expected(d, h));
    writer w = {.d = d, .fd = -1, .block = sn_alloc(BLOCK * sizeof *w.block)};
    h->now = (int64_t)time(NULL);
    sn_str_printf(&path, "%s.%ld.tmp", d->index_path, (long)getpid());
    w.path = path.data;
    sn_status s = path.failed || !w.block ? sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate an index", d->path) : SN_OK;
    if (s == SN_OK && (w.fd = open(path.data, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        s = sn_fail(SN_ERR_FILE, "cannot write the index %s of the training data: choose another place for it", path.data);
    if (s == SN_OK) s = write_entries(&w);
    if (s == SN_OK) {
        h->header_hash = header_hash(h);
        s = sn_file_write_at(w.fd, w.path, 0, h, sizeof *h);
    }
    if (s == SN_OK && (fsync(w.fd) || rename(path.data, d->index_path)))
        s = sn_fail(SN_ERR_FILE, "cannot finish the index %s", d->index_path);
    if (s == SN_OK) {
        d->index_fd = w.fd;
        d->info.built = true;
    } else if (w.fd >= 0) {
        unlink(path.data);
        close(w.fd);
    }
    sn_free(w.block);
    sn_str_free(&path);
    return s;
}

/* Whether the entries are what was written: their hash, and places inside the file. */
static sn_status check_entries(int fd, const char *path, const sn_index_header *h, bool *sound) {
    sn_index_entry *block = sn_alloc(BLOCK * sizeof *block);
    if (!block) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a read buffer", path);
    sn_status s = SN_OK;
    uint64_t hash = 0;
    *sound = true;
    for (uint64_t i = 0; i < h->entries && s == SN_OK && *sound; i += BLOCK) {
        size_t n = h->entries - i < BLOCK ? (size_t)(h->entries - i) : BLOCK;
        s = sn_file_read_at(fd, path, sizeof *h + i * sizeof *block, block, n * sizeof *block);
        if (s != SN_OK) break;
        hash = mix(hash, block, n * sizeof *block);
        for (size_t k = 0; k < n; k++) *sound &= block[k].offset <= h->data_size && block[k].size <= h->data_size - block[k].offset;
    }
    sn_free(block);
    *sound &= hash == h->entries_hash;
    return s;
}

static sn_status find(sn_dataset *d, bool *found) {
    sn_index_header want, *h = &d->header;
    uint64_t size;
    int fd;
    *found = false;
    if (!sn_path_exists(d->index_path)) return SN_OK;
    SN_TRY(expected(d, &want));
    SN_TRY(sn_file_open(d->index_path, &fd, &size));
    const char *why = "is damaged";
    sn_status s = SN_OK;
    if (size >= sizeof *h) s = sn_file_read_at(fd, d->index_path, 0, h, sizeof *h);
    bool whole = s == SN_OK && size >= sizeof *h && !memcmp(h->magic, magic, sizeof magic) && h->header_hash == header_hash(h) &&
                 h->entries <= (size - sizeof *h) / sizeof(sn_index_entry) && size == sizeof *h + h->entries * sizeof(sn_index_entry);
    if (whole && memcmp(h, &want, offsetof(sn_index_header, now))) why = "was made for other data or settings";
    else if (whole) s = check_entries(fd, d->index_path, h, found);
    if (s == SN_OK && *found) {
        d->index_fd = fd;
        return SN_OK;
    }
    close(fd);
    if (s == SN_OK) sn_info("index %s %s: it is built again", d->index_path, why);
    return s;
}

sn_status sn_index_open(sn_dataset *d) {
    bool found;
    SN_TRY(find(d, &found));
    return found ? SN_OK : build(d);
}

sn_status sn_index_entry_at(const sn_dataset *d, uint64_t i, sn_index_entry *e) {
    if (i >= d->header.entries) return sn_fail(SN_ERR_INTERNAL, "%s has no row %llu", d->path, (unsigned long long)i);
    return sn_file_read_at(d->index_fd, d->index_path, sizeof d->header + i * sizeof *e, e, sizeof *e);
}
