#include "io/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "io/json.h"

enum { MAX_HEADER = 100000000, MAX_INDEX = 1 << 28 }; /* the reference reader's limit on a header */

static sn_status no_memory(const char *path) { return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate its header's tables", path); }

/* Types that the format has and snug has not. */
static bool known_elsewhere(const char *name) {
    static const char *const names[] = {"BOOL",    "U16",     "U64",     "C64",     "F4",          "F6_E2M3",
                                        "F6_E3M2", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

static sn_status read_dtype(sn_json *r, sn_st_tensor *t) {
    SN_TRY(sn_json_want(r, SN_JSON_STRING));
    if (sn_dtype_by_safetensors(r->text, &t->dtype)) return SN_OK;
    if (known_elsewhere(r->text))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %.200s has type %s, which snug cannot hold", r->name, t->name, r->text);
    return sn_json_fail(r, "tensor %.200s: unknown dtype \"%.40s\"", t->name, r->text);
}

static sn_status read_shape(sn_json *r, sn_st_tensor *t) {
    uint64_t extent;
    t->shape = (sn_shape){0};
    SN_TRY(sn_json_want(r, SN_JSON_ARRAY));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_ARRAY_END) break;
        if (sn_json_u64(r, &extent) != SN_OK || extent > INT64_MAX)
            return sn_json_fail(r, "tensor %.200s: bad extent %.40s in its shape", t->name, r->text);
        if (t->shape.rank == SN_MAX_DIMS)
            return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %.200s has more than %d dimensions", r->name, t->name, SN_MAX_DIMS);
        t->shape.d[t->shape.rank++] = (int64_t)extent;
    }
    if (!t->shape.rank) t->shape = sn_shape_of(1);
    return SN_OK;
}

static sn_status read_offsets(sn_json *r, const char *name, uint64_t offsets[2]) {
    SN_TRY(sn_json_want(r, SN_JSON_ARRAY));
    for (int i = 0; i < 2; i++) {
        SN_TRY(sn_json_next(r));
        if (sn_json_u64(r, &offsets[i]) != SN_OK) return sn_json_fail(r, "tensor %.200s: bad offset \"%.40s\"", name, r->text);
    }
    SN_TRY(sn_json_want(r, SN_JSON_ARRAY_END));
    if (offsets[0] > offsets[1])
        return sn_json_fail(r, "tensor %.200s: begins at %" PRIu64 " and ends before, at %" PRIu64, name, offsets[0], offsets[1]);
    return SN_OK;
}

/* data: bytes after the header; t->offset counts from there until place_tensors. */
static sn_status read_tensor(sn_json *r, uint64_t data, sn_st_tensor *t) {
    bool dtype = false, shape = false, place = false;
    uint64_t offsets[2] = {0};
    size_t bytes;
    char text[96];
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        bool *seen = sn_json_is(r, "dtype") ? &dtype : sn_json_is(r, "shape") ? &shape : sn_json_is(r, "data_offsets") ? &place : NULL;
        if (!seen) { /* the reference reader passes over other keys too */
            SN_TRY(sn_json_skip(r));
            continue;
        }
        if (*seen) return sn_json_fail(r, "tensor %.200s: duplicate key \"%s\"", t->name, r->text);
        *seen = true;
        if (seen == &dtype) SN_TRY(read_dtype(r, t));
        else if (seen == &shape) SN_TRY(read_shape(r, t));
        else SN_TRY(read_offsets(r, t->name, offsets));
    }
    if (!dtype || !shape || !place)
        return sn_json_fail(r, "tensor %.200s: no %s", t->name, !dtype ? "dtype" : !shape ? "shape" : "data_offsets");
    if (!sn_shape_bytes(&t->shape, t->dtype, &bytes))
        return sn_json_fail(r, "tensor %.200s: the size of %s overflows", t->name, sn_shape_text(&t->shape, text));
    if (offsets[1] > data)
        return sn_json_fail(r, "tensor %.200s: ends at %" PRIu64 ", but the file holds %" PRIu64 " bytes of data", t->name, offsets[1],
                            data);
    if (bytes != offsets[1] - offsets[0])
        return sn_json_fail(r, "tensor %.200s: %s %s takes %zu bytes, its offsets give %" PRIu64, t->name, sn_dtype_name(t->dtype),
                            sn_shape_text(&t->shape, text), bytes, offsets[1] - offsets[0]);
    t->offset = offsets[0];
    t->bytes = bytes;
    return SN_OK;
}

static sn_status read_metadata(sn_json *r, sn_st *st, bool keep) {
    sn_names keys = {0};
    size_t index;
    bool added;
    sn_status s = sn_json_want(r, SN_JSON_OBJECT);
    while (s == SN_OK && (s = sn_json_next(r)) == SN_OK && r->type != SN_JSON_OBJECT_END) {
        s = sn_names_add(&keys, r->text, r->size, &index, &added);
        if (s == SN_OK && !added) s = sn_json_fail(r, "duplicate key \"%.200s\" in __metadata__", r->text);
        if (s == SN_OK) s = sn_json_want(r, SN_JSON_STRING);
        if (s != SN_OK || !keep) continue;
        s = SN_GROW(st->metadata, st->metadata_count, st->metadata_capacity);
        if (s != SN_OK) break;
        sn_st_metadata *m = &st->metadata[st->metadata_count++];
        m->key = sn_pool_strdup(&st->pool, keys.items[index].text);
        m->value = sn_pool_strdup(&st->pool, r->text);
        if (!m->key || !m->value) s = no_memory(r->name);
    }
    sn_names_free(&keys);
    return s;
}

static sn_status read_header(sn_json *r, sn_st *st, size_t file, uint64_t data) {
    bool metadata = false, added;
    size_t index;
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        if (sn_json_is(r, "__metadata__")) {
            if (metadata) return sn_json_fail(r, "duplicate __metadata__");
            metadata = true;
            SN_TRY(read_metadata(r, st, file == 0));
            continue;
        }
        if (memchr(r->text, 0, r->size)) return sn_json_fail(r, "tensor name with a NUL byte");
        SN_TRY(SN_GROW(st->tensors, st->tensor_count, st->tensor_capacity));
        SN_TRY(sn_names_add(&st->names, r->text, r->size, &index, &added));
        if (!added) return sn_json_fail(r, "duplicate tensor \"%.200s\"", r->text);
        sn_st_tensor *t = &st->tensors[st->tensor_count];
        *t = (sn_st_tensor){.name = st->names.items[index].text, .file = file};
        SN_TRY(read_tensor(r, data, t));
        st->tensor_count++;
    }
    return sn_json_want(r, SN_JSON_EOF);
}

static int by_offset(const void *a, const void *b) {
    const sn_st_tensor *const *x = a, *const *y = b;
    if ((*x)->offset != (*y)->offset) return (*x)->offset < (*y)->offset ? -1 : 1;
    return (*x)->bytes < (*y)->bytes ? -1 : (*x)->bytes > (*y)->bytes; /* empty tensors share an offset with the next */
}

/* No holes, no overlap; then offsets count from the beginning of the file. */
static sn_status place_tensors(sn_st *st, size_t first, const char *path, uint64_t data_start, uint64_t data) {
    size_t n = st->tensor_count - first;
    const sn_st_tensor **order = sn_alloc(n * sizeof *order);
    if (!order) return no_memory(path);
    for (size_t i = 0; i < n; i++) order[i] = &st->tensors[first + i];
    qsort(order, n, sizeof *order, by_offset);
    uint64_t at = 0;
    sn_status s = SN_OK;
    for (size_t i = 0; i < n && s == SN_OK; i++) {
        if (order[i]->offset < at)
            s = sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s at %" PRIu64 " overlaps %.200s", path, order[i]->name, order[i]->offset,
                        order[i - 1]->name);
        else if (order[i]->offset > at)
            s = sn_fail(SN_ERR_FORMAT, "%s: hole of %" PRIu64 " bytes before tensor %.200s", path, order[i]->offset - at, order[i]->name);
        at = order[i]->offset + order[i]->bytes;
    }
    if (s == SN_OK && at != data) s = sn_fail(SN_ERR_FORMAT, "%s: %" PRIu64 " bytes after the last tensor's end", path, data - at);
    sn_free(order);
    for (size_t i = 0; i < n; i++) st->tensors[first + i].offset += data_start;
    return s;
}

static sn_status add_file(sn_st *st, const char *path) {
    uint64_t n = 0;
    SN_TRY(SN_GROW(st->files, st->file_count, st->file_capacity));
    sn_st_file *f = &st->files[st->file_count];
    *f = (sn_st_file){.fd = -1, .path = sn_pool_strdup(&st->pool, path)};
    if (!f->path) return no_memory(path);
    SN_TRY(sn_file_open(path, &f->fd, &f->size));
    size_t file = st->file_count++, first = st->tensor_count;
    if (f->size < 8) return sn_fail(SN_ERR_FORMAT, "%s: %" PRIu64 " bytes are too few for a safetensors header", path, f->size);
    SN_TRY(sn_file_read_at(f->fd, path, 0, &n, 8));
    if (n > f->size - 8) return sn_fail(SN_ERR_FORMAT, "%s: the header has %" PRIu64 " bytes, but the file has %" PRIu64, path, n, f->size);
    if (n > MAX_HEADER) return sn_fail(SN_ERR_FORMAT, "%s: the header has %" PRIu64 " bytes, more than %d", path, n, MAX_HEADER);
    char *text = sn_alloc((size_t)n);
    if (!text) return no_memory(path);
    sn_status s = sn_file_read_at(f->fd, path, 8, text, (size_t)n);
    sn_json r;
    sn_json_start(&r, f->path, text, (size_t)n);
    uint64_t data = f->size - 8 - n;
    if (s == SN_OK) s = read_header(&r, st, file, data);
    sn_json_end(&r);
    sn_free(text);
    return s == SN_OK ? place_tensors(st, first, path, 8 + n, data) : s;
}

sn_status sn_st_open(const char *path, sn_st *st) {
    *st = (sn_st){0};
    sn_status s = add_file(st, path);
    if (s != SN_OK) sn_st_close(st);
    return s;
}

void sn_st_close(sn_st *st) {
    for (size_t i = 0; i < st->file_count; i++) close(st->files[i].fd);
    sn_free(st->files);
    sn_free(st->tensors);
    sn_free(st->metadata);
    sn_names_free(&st->names);
    sn_pool_free(&st->pool);
    *st = (sn_st){0};
}

/* weight_map: which file holds each tensor. Fills `tensors` (names) and of_tensor[i] (index into shards). */
typedef struct weight_map {
    sn_names tensors, shards;
    size_t *of_tensor;
    size_t capacity;
} weight_map;

static sn_status read_weight_map(sn_json *r, weight_map *map) {
    size_t index, shard;
    bool added, ignored;
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) return SN_OK;
        SN_TRY(SN_GROW(map->of_tensor, map->tensors.count, map->capacity));
        SN_TRY(sn_names_add(&map->tensors, r->text, r->size, &index, &added));
        if (!added) return sn_json_fail(r, "duplicate tensor \"%.200s\"", r->text);
        SN_TRY(sn_json_want(r, SN_JSON_STRING));
        if (!r->size || r->text[0] == '.' || memchr(r->text, '/', r->size) || memchr(r->text, 0, r->size))
            return sn_json_fail(r, "\"%.200s\" is no plain file name", r->text);
        SN_TRY(sn_names_add(&map->shards, r->text, r->size, &shard, &ignored));
        map->of_tensor[index] = shard;
    }
}

static sn_status read_index(const char *path, weight_map *map) {
    char *text;
    size_t size;
    sn_json r;
    bool seen = false;
    SN_TRY(sn_file_read_all(path, MAX_INDEX, &text, &size));
    sn_json_start(&r, path, text, size);
    sn_status s = sn_json_want(&r, SN_JSON_OBJECT);
    while (s == SN_OK && (s = sn_json_next(&r)) == SN_OK && r.type != SN_JSON_OBJECT_END) {
        if (!sn_json_is(&r, "weight_map")) s = sn_json_skip(&r);
        else if (seen) s = sn_json_fail(&r, "duplicate weight_map");
        else seen = true, s = read_weight_map(&r, map);
    }
    if (s == SN_OK) s = sn_json_want(&r, SN_JSON_EOF);
    if (s == SN_OK && !seen) s = sn_fail(SN_ERR_FORMAT, "%s: no weight_map", path);
    sn_json_end(&r);
    sn_free(text);
    return s;
}

static sn_status open_shards(const char *folder, const char *index_path, const weight_map *map, sn_st *st) {
    size_t index;
    for (size_t i = 0; i < map->shards.count; i++) {
        char *path = sn_path_join(folder, map->shards.items[i].text);
        if (!path) return no_memory(folder);
        sn_status s = add_file(st, path);
        sn_free(path);
        SN_TRY(s);
    }
    for (size_t i = 0; i < map->tensors.count; i++) {
        const sn_st_tensor *t = sn_st_find(st, map->tensors.items[i].text);
        if (!t || t->file != map->of_tensor[i])
            return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s is not in %s", index_path, map->tensors.items[i].text,
                           map->shards.items[map->of_tensor[i]].text);
    }
    for (size_t i = 0; i < st->tensor_count; i++)
        if (!sn_names_find(&map->tensors, st->tensors[i].name, strlen(st->tensors[i].name), &index))
            return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s of %s is not in the index", index_path, st->tensors[i].name,
                           st->files[st->tensors[i].file].path);
    return SN_OK;
}

sn_status sn_st_open_folder(const char *folder, const char *stem, sn_st *st) {
    *st = (sn_st){0};
    char *single = sn_pool_printf(&st->pool, "%s/%s.safetensors", folder, stem);
    char *index = sn_pool_printf(&st->pool, "%s/%s.safetensors.index.json", folder, stem);
    sn_status s = SN_OK;
    if (!single || !index) s = no_memory(folder);
    else if (sn_path_exists(single)) s = add_file(st, single);
    else if (!sn_path_exists(index))
        s = sn_fail(SN_ERR_FILE, "%s holds neither %s.safetensors nor %s.safetensors.index.json", folder, stem, stem);
    else {
        weight_map map = {0};
        s = read_index(index, &map);
        if (s == SN_OK) s = open_shards(folder, index, &map, st);
        sn_names_free(&map.tensors);
        sn_names_free(&map.shards);
        sn_free(map.of_tensor);
    }
    if (s != SN_OK) sn_st_close(st);
    return s;
}

const sn_st_tensor *sn_st_find(const sn_st *st, const char *name) {
    size_t index;
    return sn_names_find(&st->names, name, strlen(name), &index) && index < st->tensor_count ? &st->tensors[index] : NULL;
}

const char *sn_st_metadata_value(const sn_st *st, const char *key) {
    for (size_t i = 0; i < st->metadata_count; i++)
        if (!strcmp(st->metadata[i].key, key)) return st->metadata[i].value;
    return NULL;
}

sn_status sn_st_read(const sn_st *st, const sn_st_tensor *t, uint64_t from, void *data, size_t n) {
    const sn_st_file *f = &st->files[t->file];
    if (from > t->bytes || n > t->bytes - from)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %zu bytes at %" PRIu64 " of %" PRIu64, f->path, t->name, n, from, t->bytes);
    return sn_file_read_at(f->fd, f->path, t->offset + from, data, n);
}
