/* Writing GGUF version 3. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "io/commit.h"
#include "io/gguf.h"

sn_status sn_gguf_write_open(const char *path, uint32_t alignment, sn_gguf_writer *w) {
    *w = (sn_gguf_writer){.fd = -1, .alignment = alignment ? alignment : 32};
    if (w->alignment < 8 || w->alignment > 1 << 20 || w->alignment & (w->alignment - 1))
        return sn_fail(SN_ERR_USAGE, "%s: alignment %u is no power of two from 8 to 1048576", path, alignment);
    sn_str temporary = {0};
    sn_str_printf(&temporary, "%s.tmp", path);
    w->path = sn_strdup(path);
    w->temporary = temporary.data;
    if (!w->path || temporary.failed) {
        sn_gguf_write_close(w);
        return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a writer", path);
    }
    return alignment && alignment != 32 ? sn_gguf_add_u32(w, "general.alignment", alignment) : SN_OK;
}

void sn_gguf_write_close(sn_gguf_writer *w) {
    if (w->path && w->fd >= 0) {
        close(w->fd);
        unlink(w->temporary);
    }
    sn_free(w->path);
    sn_free(w->temporary);
    sn_str_free(&w->metadata);
    sn_free(w->tensors);
    sn_free(w->written);
    sn_names_free(&w->keys);
    sn_names_free(&w->names);
    *w = (sn_gguf_writer){.fd = -1};
}

static void put(sn_gguf_writer *w, const void *value, size_t n) { sn_str_append(&w->metadata, value, n); }
static void put_u32(sn_gguf_writer *w, uint32_t value) { put(w, &value, 4); }
static void put_u64(sn_gguf_writer *w, uint64_t value) { put(w, &value, 8); }
static void put_text(sn_gguf_writer *w, const char *text, size_t n) {
    put_u64(w, n);
    put(w, text, n);
}

static sn_status put_key(sn_gguf_writer *w, const char *key, uint32_t type) {
    size_t index;
    bool added;
    if (w->fd >= 0) return sn_fail(SN_ERR_USAGE, "%s: key %s added after the layout was fixed", w->path, key);
    SN_TRY(sn_names_add(&w->keys, key, strlen(key), &index, &added));
    if (!added) return sn_fail(SN_ERR_USAGE, "%s: key %s added twice", w->path, key);
    put_text(w, key, strlen(key));
    put_u32(w, type);
    w->kv_count++;
    return SN_OK;
}

static sn_status put_done(sn_gguf_writer *w, const char *key) {
    return w->metadata.failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: key %s: cannot allocate its value", w->path, key) : SN_OK;
}

static sn_status add_scalar(sn_gguf_writer *w, const char *key, sn_gguf_type type, const void *value, size_t n) {
    SN_TRY(put_key(w, key, type));
    put(w, value, n);
    return put_done(w, key);
}

sn_status sn_gguf_add_u32(sn_gguf_writer *w, const char *key, uint32_t value) { return add_scalar(w, key, SN_GGUF_U32, &value, 4); }
sn_status sn_gguf_add_i32(sn_gguf_writer *w, const char *key, int32_t value) { return add_scalar(w, key, SN_GGUF_I32, &value, 4); }
sn_status sn_gguf_add_u64(sn_gguf_writer *w, const char *key, uint64_t value) { return add_scalar(w, key, SN_GGUF_U64, &value, 8); }
sn_status sn_gguf_add_f32(sn_gguf_writer *w, const char *key, float value) { return add_scalar(w, key, SN_GGUF_F32, &value, 4); }
sn_status sn_gguf_add_bool(sn_gguf_writer *w, const char *key, bool value) {
    uint8_t byte = value;
    return add_scalar(w, key, SN_GGUF_BOOL, &byte, 1);
}

sn_status sn_gguf_add_string(sn_gguf_writer *w, const char *key, const char *text, size_t size) {
    SN_TRY(put_key(w, key, SN_GGUF_STRING));
    put_text(w, text, size);
    return put_done(w, key);
}

sn_status sn_gguf_add_strings(sn_gguf_writer *w, const char *key, const sn_gguf_string *items, size_t count) {
    SN_TRY(put_key(w, key, SN_GGUF_ARRAY));
    put_u32(w, SN_GGUF_STRING);
    put_u64(w, count);
    for (size_t i = 0; i < count; i++) put_text(w, items[i].text, items[i].size);
    return put_done(w, key);
}

static sn_status add_array(sn_gguf_writer *w, const char *key, sn_gguf_type type, const void *items, size_t count) {
    SN_TRY(put_key(w, key, SN_GGUF_ARRAY));
    put_u32(w, type);
    put_u64(w, count);
    put(w, items, count * 4);
    return put_done(w, key);
}

sn_status sn_gguf_add_i32s(sn_gguf_writer *w, const char *key, const int32_t *items, size_t count) {
    return add_array(w, key, SN_GGUF_I32, items, count);
}
sn_status sn_gguf_add_f32s(sn_gguf_writer *w, const char *key, const float *items, size_t count) {
    return add_array(w, key, SN_GGUF_F32, items, count);
}

sn_status sn_gguf_add_copy(sn_gguf_writer *w, const sn_gguf *from, const sn_gguf_kv *kv) {
    char part[4096];
    SN_TRY(put_key(w, kv->key, kv->type));
    if (kv->type == SN_GGUF_ARRAY) put_u32(w, kv->item_type);
    if (kv->type == SN_GGUF_ARRAY || kv->type == SN_GGUF_STRING) put_u64(w, kv->count);
    for (uint64_t at = 0; at < kv->bytes; at += sizeof part) {
        size_t n = kv->bytes - at < sizeof part ? (size_t)(kv->bytes - at) : sizeof part;
        SN_TRY(sn_file_read_at(from->fd, from->path, kv->offset + at, part, n));
        put(w, part, n);
    }
    return put_done(w, kv->key);
}

sn_status sn_gguf_add_tensor(sn_gguf_writer *w, const char *name, sn_dtype dtype, const sn_shape *shape) {
    size_t index, bytes;
    bool added;
    char text[96];
    if (w->fd >= 0) return sn_fail(SN_ERR_USAGE, "%s: tensor %s added after the layout was fixed", w->path, name);
    if (sn_dtypes[dtype].gguf < 0)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %s: GGUF has no type for %s", w->path, name, sn_dtype_name(dtype));
    if (shape->rank < 1 || shape->rank > 4 || !sn_shape_bytes(shape, dtype, &bytes))
        return sn_fail(SN_ERR_SHAPE, "%s: tensor %s: GGUF cannot hold %s %s", w->path, name, sn_dtype_name(dtype),
                       sn_shape_text(shape, text));
    SN_TRY(SN_GROW(w->tensors, w->tensor_count, w->tensor_capacity));
    SN_TRY(sn_names_add(&w->names, name, strlen(name), &index, &added));
    if (!added) return sn_fail(SN_ERR_USAGE, "%s: tensor %s added twice", w->path, name);
    w->tensors[w->tensor_count++] =
        (sn_gguf_tensor){.name = w->names.items[index].text, .dtype = dtype, .shape = *shape, .offset = w->size, .bytes = bytes};
    if (__builtin_add_overflow(w->size, (uint64_t)bytes, &w->size) || w->size > (uint64_t)INT64_MAX - w->alignment)
        return sn_fail(SN_ERR_SHAPE, "%s: tensor %s: the file's size overflows", w->path, name);
    w->size = (w->size + w->alignment - 1) / w->alignment * w->alignment; /* llama.cpp wants each tensor padded, the last too */
    return SN_OK;
}

static sn_status header_text(sn_gguf_writer *w, sn_str *head) {
    uint32_t version = 3, type;
    uint64_t tensors = w->tensor_count;
    sn_str_append(head, "GGUF", 4);
    sn_str_append(head, (const char *)&version, 4);
    sn_str_append(head, (const char *)&tensors, 8);
    sn_str_append(head, (const char *)&w->kv_count, 8);
    sn_str_append(head, w->metadata.data, w->metadata.size);
    for (size_t i = 0; i < w->tensor_count; i++) {
        const sn_gguf_tensor *t = &w->tensors[i];
        uint64_t n = strlen(t->name);
        uint32_t rank = (uint32_t)t->shape.rank;
        type = (uint32_t)sn_dtypes[t->dtype].gguf;
        sn_str_append(head, (const char *)&n, 8);
        sn_str_append(head, t->name, (size_t)n);
        sn_str_append(head, (const char *)&rank, 4);
        for (uint32_t d = 0; d < rank; d++) sn_str_append(head, (const char *)&t->shape.d[rank - 1 - d], 8);
        sn_str_append(head, (const char *)&type, 4);
        sn_str_append(head, (const char *)&t->offset, 8);
    }
    while (head->size % w->alignment && !head->failed) sn_str_char(head, 0);
    return head->failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate the header", w->path) : SN_OK;
}

sn_status sn_gguf_write_begin(sn_gguf_writer *w) {
    sn_str head = {0};
    if (w->fd >= 0) return sn_fail(SN_ERR_USAGE, "%s: begun twice", w->path);
    w->written = sn_alloc_zero(w->tensor_count, sizeof *w->written);
    if (!w->written) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate %zu counters", w->path, w->tensor_count);
    sn_status s = header_text(w, &head);
    if (s == SN_OK && (w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        s = sn_fail(SN_ERR_FILE, "cannot create %s: %s", w->temporary, strerror(errno));
    if (s == SN_OK) s = sn_file_write_at(w->fd, w->temporary, 0, head.data, head.size);
    w->data_start = head.size;
    w->size += head.size;
    if (s == SN_OK && ftruncate(w->fd, (off_t)w->size)) /* the padding between tensors reads as zeros */
        s = sn_fail(SN_ERR_FILE, "cannot make %s %" PRIu64 " bytes long: %s", w->temporary, w->size, strerror(errno));
    for (size_t i = 0; i < w->tensor_count; i++) w->tensors[i].offset += w->data_start;
    sn_str_free(&head);
    return s;
}

sn_status sn_gguf_write(sn_gguf_writer *w, size_t tensor, uint64_t from, const void *data, size_t n) {
    if (w->fd < 0 || tensor >= w->tensor_count) return sn_fail(SN_ERR_USAGE, "%s: tensor %zu cannot be written now", w->path, tensor);
    const sn_gguf_tensor *t = &w->tensors[tensor];
    if (from > t->bytes || n > t->bytes - from)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %zu bytes at %" PRIu64 " of %" PRIu64, w->path, t->name, n, from, t->bytes);
    SN_TRY(sn_file_write_at(w->fd, w->temporary, t->offset + from, data, n));
    w->written[tensor] += n;
    return SN_OK;
}

sn_status sn_gguf_write_finish(sn_gguf_writer *w) {
    if (w->fd < 0) return sn_fail(SN_ERR_USAGE, "%s: finished before it was begun", w->path);
    for (size_t i = 0; i < w->tensor_count; i++)
        if (w->written[i] != w->tensors[i].bytes)
            return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %" PRIu64 " of %" PRIu64 " bytes were written", w->path, w->tensors[i].name,
                           w->written[i], w->tensors[i].bytes);
    return sn_file_commit(&w->fd, w->temporary, w->path);
}
