/* Writing safetensors: shards are planned from the tensors' sizes, headers written first, data at fixed offsets. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "io/commit.h"
#include "io/safetensors.h"

static const char *target(const sn_st_writer *w) { return w->path ? w->path : w->folder; }

static sn_status no_memory(const sn_st_writer *w) { return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a writer", target(w)); }

sn_status sn_st_write_open(const char *path, sn_st_writer *w) {
    *w = (sn_st_writer){.max_bytes = UINT64_MAX, .path = sn_strdup(path)};
    return w->path ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a writer", path);
}

sn_status sn_st_write_open_folder(const char *folder, const char *stem, uint64_t max_bytes, sn_st_writer *w) {
    *w = (sn_st_writer){.max_bytes = max_bytes, .folder = sn_strdup(folder), .stem = sn_strdup(stem)};
    sn_status s = w->folder && w->stem ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a writer", folder);
    if (s == SN_OK) s = sn_make_dirs(folder);
    if (s != SN_OK) sn_st_write_close(w);
    return s;
}

void sn_st_write_close(sn_st_writer *w) {
    for (size_t i = 0; i < w->file_count; i++) {
        if (w->files[i].fd >= 0) {
            close(w->files[i].fd);
            if (!w->joins) unlink(w->files[i].temporary);
        }
    }
    sn_free(w->files);
    sn_free(w->path);
    sn_free(w->folder);
    sn_free(w->stem);
    sn_free(w->tensors);
    sn_free(w->written);
    sn_free(w->metadata);
    sn_names_free(&w->names);
    sn_names_free(&w->keys);
    sn_pool_free(&w->pool);
    *w = (sn_st_writer){0};
}

sn_status sn_st_add_metadata(sn_st_writer *w, const char *key, const char *value) {
    size_t index;
    bool added;
    if (w->begun) return sn_fail(SN_ERR_USAGE, "%s: metadata %s added after the layout was fixed", target(w), key);
    SN_TRY(SN_GROW(w->metadata, w->metadata_count, w->metadata_capacity));
    SN_TRY(sn_names_add(&w->keys, key, strlen(key), &index, &added));
    if (!added) return sn_fail(SN_ERR_USAGE, "%s: metadata %s added twice", target(w), key);
    char *copy = sn_pool_strdup(&w->pool, value);
    if (!copy) return no_memory(w);
    w->metadata[w->metadata_count++] = (sn_st_metadata){w->keys.items[index].text, copy};
    return SN_OK;
}

sn_status sn_st_add_tensor(sn_st_writer *w, const char *name, sn_dtype dtype, const sn_shape *shape) {
    size_t index, bytes;
    bool added;
    char text[96];
    if (w->begun) return sn_fail(SN_ERR_USAGE, "%s: tensor %s added after the layout was fixed", target(w), name);
    if (!sn_dtypes[dtype].st)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %s: safetensors has no type for %s", target(w), name, sn_dtype_name(dtype));
    if (!sn_shape_bytes(shape, dtype, &bytes))
        return sn_fail(SN_ERR_SHAPE, "%s: tensor %s: the size of %s overflows", target(w), name, sn_shape_text(shape, text));
    if (!strcmp(name, "__metadata__")) return sn_fail(SN_ERR_USAGE, "%s: a tensor cannot be named __metadata__", target(w));
    SN_TRY(SN_GROW(w->tensors, w->tensor_count, w->tensor_capacity));
    SN_TRY(sn_names_add(&w->names, name, strlen(name), &index, &added));
    if (!added) return sn_fail(SN_ERR_USAGE, "%s: tensor %s added twice", target(w), name);
    w->tensors[w->tensor_count++] = (sn_st_tensor){.name = w->names.items[index].text, .dtype = dtype, .shape = *shape, .bytes = bytes};
    return SN_OK;
}

/* Fills shards in the order of adding, each with at least one tensor. Returns the number of shards. */
static size_t assign_shards(sn_st_writer *w) {
    size_t shard = 0;
    uint64_t used = 0;
    for (size_t i = 0; i < w->tensor_count; i++) {
        sn_st_tensor *t = &w->tensors[i];
        if (i && used && (t->bytes > w->max_bytes || used > w->max_bytes - t->bytes)) {
            shard++;
            used = 0;
        }
        t->file = shard;
        used += t->bytes;
    }
    return shard + 1;
}

static sn_status name_files(sn_st_writer *w, size_t shards) {
    for (size_t i = 0; i < shards; i++) {
        SN_TRY(SN_GROW(w->files, w->file_count, w->file_capacity));
        sn_st_out *f = &w->files[w->file_count];
        *f = (sn_st_out){.fd = -1};
        if (w->path) f->path = sn_pool_strdup(&w->pool, w->path);
        else if (shards == 1) f->path = sn_pool_printf(&w->pool, "%s/%s.safetensors", w->folder, w->stem);
        else f->path = sn_pool_printf(&w->pool, "%s/%s-%05zu-of-%05zu.safetensors", w->folder, w->stem, i + 1, shards);
        f->temporary = f->path ? sn_pool_printf(&w->pool, "%s.tmp", f->path) : NULL;
        if (!f->temporary) return no_memory(w);
        w->file_count++;
    }
    return SN_OK;
}

static int by_file_and_size(const void *a, const void *b) {
    const sn_st_tensor *const *x = a, *const *y = b;
    if ((*x)->file != (*y)->file) return (*x)->file < (*y)->file ? -1 : 1;
    int xs = sn_dtypes[(*x)->dtype].bytes, ys = sn_dtypes[(*y)->dtype].bytes;
    if (xs != ys) return xs > ys ? -1 : 1; /* wide elements first: every tensor is then aligned to its element */
    return *x < *y ? -1 : *x > *y;
}

static void header_entry(sn_str *head, const sn_st_tensor *t) {
    sn_str_json(head, t->name, strlen(t->name));
    sn_str_printf(head, ":{\"dtype\":\"%s\",\"shape\":[", sn_dtypes[t->dtype].st);
    for (int d = 0; d < t->shape.rank; d++) sn_str_printf(head, "%s%" PRId64, d ? "," : "", t->shape.d[d]);
    sn_str_printf(head, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->offset, t->offset + t->bytes);
}

/* The header of one file, with its length in front, padded with spaces to a multiple of 8. */
static sn_status header_text(const sn_st_writer *w, sn_st_tensor *const *order, size_t n, sn_str *head) {
    sn_str_append(head, "\0\0\0\0\0\0\0\0{", 9);
    if (w->metadata_count) sn_str_add(head, "\"__metadata__\":{");
    for (size_t i = 0; i < w->metadata_count; i++) {
        if (i) sn_str_char(head, ',');
        sn_str_json(head, w->metadata[i].key, strlen(w->metadata[i].key));
        sn_str_char(head, ':');
        sn_str_json(head, w->metadata[i].value, strlen(w->metadata[i].value));
    }
    if (w->metadata_count) sn_str_char(head, '}');
    for (size_t i = 0; i < n; i++) {
        if (i || w->metadata_count) sn_str_char(head, ',');
        header_entry(head, order[i]);
    }
    sn_str_char(head, '}');
    while (head->size % 8 && !head->failed) sn_str_char(head, ' ');
    if (head->failed) return no_memory(w);
    uint64_t bytes = head->size - 8;
    memcpy(head->data, &bytes, 8);
    return SN_OK;
}

static sn_status create_file(const sn_st_out *f, const sn_str *head) {
    SN_TRY(sn_file_write_at(f->fd, f->temporary, 0, head->data, head->size));
    if (ftruncate(f->fd, (off_t)(head->size + f->bytes)))
        return sn_fail(SN_ERR_FILE, "cannot make %s %" PRIu64 " bytes long: %s", f->temporary, head->size + f->bytes, strerror(errno));
    return SN_OK;
}

static sn_status check_size(const sn_st_out *f, const sn_str *head) {
    struct stat st;
    if (fstat(f->fd, &st)) return sn_fail(SN_ERR_FILE, "cannot look at %s: %s", f->temporary, strerror(errno));
    if ((uint64_t)st.st_size == head->size + f->bytes) return SN_OK;
    return sn_fail(SN_ERR_FILE, "%s has %lld bytes, wanted %" PRIu64 ": another process began it otherwise", f->temporary,
                   (long long)st.st_size, head->size + f->bytes);
}

static sn_status begin_file(sn_st_writer *w, sn_st_out *f, sn_st_tensor **order, size_t n) {
    sn_str head = {0};
    for (size_t i = 0; i < n; i++) {
        order[i]->offset = f->bytes;
        if (__builtin_add_overflow(f->bytes, order[i]->bytes, &f->bytes) || f->bytes > INT64_MAX / 2)
            return sn_fail(SN_ERR_SHAPE, "%s: tensor %s: the file's size overflows", f->path, order[i]->name);
    }
    sn_status s = header_text(w, order, n, &head);
    if (s == SN_OK && (f->fd = open(f->temporary, w->joins ? O_RDWR | O_CLOEXEC : O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        s = sn_fail(SN_ERR_FILE, "cannot %s %s: %s", w->joins ? "open" : "create", f->temporary, strerror(errno));
    if (s == SN_OK) s = w->joins ? check_size(f, &head) : create_file(f, &head);
    for (size_t i = 0; i < n; i++) order[i]->offset += head.size;
    sn_str_free(&head);
    return s;
}

sn_status sn_st_write_begin(sn_st_writer *w) {
    if (w->begun) return sn_fail(SN_ERR_USAGE, "%s: begun twice", target(w));
    w->begun = true;
    SN_TRY(name_files(w, assign_shards(w)));
    w->written = sn_alloc_zero(w->tensor_count, sizeof *w->written);
    sn_st_tensor **order = sn_alloc(w->tensor_count * sizeof *order);
    sn_status s = w->written && order ? SN_OK : no_memory(w);
    if (s == SN_OK) {
        for (size_t i = 0; i < w->tensor_count; i++) order[i] = &w->tensors[i];
        qsort(order, w->tensor_count, sizeof *order, by_file_and_size);
    }
    size_t first = 0;
    for (size_t file = 0; file < w->file_count && s == SN_OK; file++) {
        size_t end = first;
        while (end < w->tensor_count && order[end]->file == file) end++;
        s = begin_file(w, &w->files[file], order + first, end - first);
        first = end;
    }
    sn_free(order);
    return s;
}

sn_status sn_st_write(sn_st_writer *w, size_t tensor, uint64_t from, const void *data, size_t n) {
    if (!w->begun || tensor >= w->tensor_count) return sn_fail(SN_ERR_USAGE, "%s: tensor %zu cannot be written now", target(w), tensor);
    const sn_st_tensor *t = &w->tensors[tensor];
    const sn_st_out *f = &w->files[t->file];
    if (from > t->bytes || n > t->bytes - from)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %zu bytes at %" PRIu64 " of %" PRIu64, f->path, t->name, n, from, t->bytes);
    SN_TRY(sn_file_write_at(f->fd, f->temporary, t->offset + from, data, n));
    w->written[tensor] += n;
    return SN_OK;
}

sn_status sn_st_write_read(const sn_st_writer *w, size_t tensor, uint64_t from, void *data, size_t n) {
    if (!w->begun || tensor >= w->tensor_count) return sn_fail(SN_ERR_USAGE, "%s: tensor %zu cannot be read now", target(w), tensor);
    const sn_st_tensor *t = &w->tensors[tensor];
    const sn_st_out *f = &w->files[t->file];
    if (from > t->bytes || n > t->bytes - from)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %zu bytes at %" PRIu64 " of %" PRIu64, f->path, t->name, n, from, t->bytes);
    return sn_file_read_at(f->fd, f->temporary, t->offset + from, data, n);
}

sn_status sn_st_write_join(sn_st_writer *w) {
    w->joins = true;
    return sn_st_write_begin(w);
}

sn_status sn_st_write_leave(sn_st_writer *w) {
    for (size_t i = 0; i < w->file_count; i++) {
        if (w->files[i].fd >= 0 && fsync(w->files[i].fd))
            return sn_fail(SN_ERR_FILE, "cannot write %s: %s", w->files[i].temporary, strerror(errno));
    }
    return SN_OK;
}

void sn_st_write_count(sn_st_writer *w, size_t tensor, uint64_t bytes) { w->written[tensor] += bytes; }

static sn_status write_index(const sn_st_writer *w) {
    sn_str text = {0}, path = {0};
    uint64_t total = 0;
    for (size_t i = 0; i < w->file_count; i++) total += w->files[i].bytes;
    sn_str_printf(&text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {", total);
    for (size_t i = 0; i < w->tensor_count; i++) {
        const sn_st_tensor *t = &w->tensors[i];
        const char *file = strrchr(w->files[t->file].path, '/') + 1;
        sn_str_add(&text, i ? ",\n    " : "\n    ");
        sn_str_json(&text, t->name, strlen(t->name));
        sn_str_add(&text, ": ");
        sn_str_json(&text, file, strlen(file));
    }
    sn_str_add(&text, "\n  }\n}\n");
    sn_str_printf(&path, "%s/%s.safetensors.index.json", w->folder, w->stem);
    sn_status s = text.failed || path.failed ? no_memory(w) : sn_file_replace(path.data, text.data, text.size);
    sn_str_free(&text);
    sn_str_free(&path);
    return s;
}

/* A reader takes STEM.safetensors before the index: what an earlier save left in the other layout must not win. */
static sn_status remove_older(const sn_st_writer *w) {
    sn_str path = {0};
    sn_str_printf(&path, "%s/%s.safetensors%s", w->folder, w->stem, w->file_count > 1 ? "" : ".index.json");
    sn_status s = SN_OK;
    if (path.failed) s = no_memory(w);
    else if (unlink(path.data) && errno != ENOENT) s = sn_fail(SN_ERR_FILE, "cannot remove %s: %s", path.data, strerror(errno));
    sn_str_free(&path);
    return s;
}

sn_status sn_st_write_finish(sn_st_writer *w) {
    if (!w->begun) return sn_fail(SN_ERR_USAGE, "%s: finished before it was begun", target(w));
    for (size_t i = 0; i < w->tensor_count; i++)
        if (w->written[i] != w->tensors[i].bytes)
            return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %" PRIu64 " of %" PRIu64 " bytes were written", target(w), w->tensors[i].name,
                           w->written[i], w->tensors[i].bytes);
    for (size_t i = 0; i < w->file_count; i++) SN_TRY(sn_file_commit(&w->files[i].fd, w->files[i].temporary, w->files[i].path));
    if (w->path) return SN_OK;
    if (w->file_count > 1) SN_TRY(write_index(w));
    return remove_older(w);
}
