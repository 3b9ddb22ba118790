/* Lookups in an open GGUF file: typed metadata, arrays, tensor bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/gguf.h"

const sn_gguf_kv *sn_gguf_find(const sn_gguf *g, const char *key) {
    size_t index;
    return sn_names_find(&g->keys, key, strlen(key), &index) && index < g->kv_count ? &g->kv[index] : NULL;
}

const sn_gguf_tensor *sn_gguf_find_tensor(const sn_gguf *g, const char *name) {
    size_t index;
    return sn_names_find(&g->names, name, strlen(name), &index) && index < g->tensor_count ? &g->tensors[index] : NULL;
}

static sn_status want(const sn_gguf *g, const char *key, const char *wanted, const sn_gguf_kv **kv) {
    *kv = sn_gguf_find(g, key);
    return *kv ? SN_OK : sn_fail(SN_ERR_FORMAT, "%s: key %s: wanted %s, found no such key", g->path, key, wanted);
}

static sn_status other_type(const sn_gguf *g, const sn_gguf_kv *kv, const char *wanted) {
    if (kv->type == SN_GGUF_ARRAY)
        return sn_fail(SN_ERR_FORMAT, "%s: key %s: wanted %s, found array of %s", g->path, kv->key, wanted,
                       sn_gguf_type_name(kv->item_type));
    return sn_fail(SN_ERR_FORMAT, "%s: key %s: wanted %s, found %s", g->path, kv->key, wanted, sn_gguf_type_name(kv->type));
}

/* An integer of any width as sign and magnitude; false for other types. */
static bool integer(sn_gguf_type type, const uint8_t *bytes, bool *negative, uint64_t *magnitude) {
    uint64_t u = 0;
    int64_t i;
    switch (type) { /* the file and every host snug runs on are little-endian */
    case SN_GGUF_U8: memcpy(&u, bytes, 1); break;
    case SN_GGUF_U16: memcpy(&u, bytes, 2); break;
    case SN_GGUF_U32: memcpy(&u, bytes, 4); break;
    case SN_GGUF_U64: memcpy(&u, bytes, 8); break;
    case SN_GGUF_I8: i = (int8_t)bytes[0]; goto has_sign;
    case SN_GGUF_I16: i = (int16_t)(bytes[0] | bytes[1] << 8); goto has_sign;
    case SN_GGUF_I32: {
        int32_t v;
        memcpy(&v, bytes, 4);
        i = v;
        goto has_sign;
    }
    case SN_GGUF_I64: memcpy(&i, bytes, 8); goto has_sign;
    default: return false;
    }
    *negative = false;
    *magnitude = u;
    return true;
has_sign:
    *negative = i < 0;
    *magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    return true;
}

static sn_status out_of_range(const sn_gguf *g, const sn_gguf_kv *kv, const char *wanted, bool negative, uint64_t magnitude) {
    return sn_fail(SN_ERR_FORMAT, "%s: key %s: wanted %s, found %s%" PRIu64, g->path, kv->key, wanted, negative ? "-" : "", magnitude);
}

static sn_status get_unsigned(const sn_gguf *g, const char *key, const char *wanted, uint64_t most, uint64_t *out) {
    const sn_gguf_kv *kv;
    bool negative;
    SN_TRY(want(g, key, wanted, &kv));
    if (!integer(kv->type, kv->scalar, &negative, out)) return other_type(g, kv, wanted);
    return negative || *out > most ? out_of_range(g, kv, wanted, negative, *out) : SN_OK;
}

sn_status sn_gguf_get_u32(const sn_gguf *g, const char *key, uint32_t *out) {
    uint64_t value;
    SN_TRY(get_unsigned(g, key, "u32", UINT32_MAX, &value));
    *out = (uint32_t)value;
    return SN_OK;
}

sn_status sn_gguf_get_u64(const sn_gguf *g, const char *key, uint64_t *out) { return get_unsigned(g, key, "u64", UINT64_MAX, out); }

sn_status sn_gguf_get_i64(const sn_gguf *g, const char *key, int64_t *out) {
    const sn_gguf_kv *kv;
    bool negative;
    uint64_t magnitude;
    SN_TRY(want(g, key, "i64", &kv));
    if (!integer(kv->type, kv->scalar, &negative, &magnitude)) return other_type(g, kv, "i64");
    if (magnitude > (uint64_t)INT64_MAX + negative) return out_of_range(g, kv, "i64", negative, magnitude);
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return SN_OK;
}

/* The double with the fewest decimal digits that rounds to this float: 1e-5f becomes 1e-5, not 9.99999974e-6. */
static double shortest_decimal(float f) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)f);
        double d = strtod(text, NULL);
        if ((float)d == f) return d;
    }
    return (double)f;
}

sn_status sn_gguf_get_f64(const sn_gguf *g, const char *key, double *out) {
    const sn_gguf_kv *kv;
    float f;
    SN_TRY(want(g, key, "f32 or f64", &kv));
    if (kv->type == SN_GGUF_F64) return memcpy(out, kv->scalar, 8), SN_OK;
    if (kv->type != SN_GGUF_F32) return other_type(g, kv, "f32 or f64");
    memcpy(&f, kv->scalar, 4);
    *out = shortest_decimal(f);
    return SN_OK;
}

sn_status sn_gguf_get_bool(const sn_gguf *g, const char *key, bool *out) {
    const sn_gguf_kv *kv;
    SN_TRY(want(g, key, "bool", &kv));
    if (kv->type != SN_GGUF_BOOL) return other_type(g, kv, "bool");
    *out = kv->scalar[0];
    return SN_OK;
}

sn_status sn_gguf_get_string(const sn_gguf *g, const char *key, const char **out) {
    const sn_gguf_kv *kv;
    SN_TRY(want(g, key, "string", &kv));
    if (kv->type != SN_GGUF_STRING) return other_type(g, kv, "string");
    *out = kv->string;
    return SN_OK;
}

static sn_status no_array_memory(const sn_gguf *g, const sn_gguf_kv *kv) {
    return sn_fail(SN_ERR_NO_MEMORY, "%s: key %s: cannot allocate an array of %" PRIu64, g->path, kv->key, kv->count);
}

/* The file holds u64 length and bytes of each item. They are read to the end of the block and moved down to their
 * place: an item's eight bytes of length leave room for its NUL, so the writing never overtakes the reading. */
sn_status sn_gguf_get_strings(const sn_gguf *g, const char *key, sn_gguf_string **out, size_t *count) {
    const sn_gguf_kv *kv;
    size_t table, total;
    SN_TRY(want(g, key, "array of string", &kv));
    if (kv->type != SN_GGUF_ARRAY || kv->item_type != SN_GGUF_STRING) return other_type(g, kv, "array of string");
    if (!sn_mul((size_t)kv->count, sizeof **out, &table) || !sn_add(table, (size_t)kv->bytes, &total)) return no_array_memory(g, kv);
    sn_gguf_string *items = sn_alloc(total);
    if (!items) return no_array_memory(g, kv);
    char *bytes = (char *)(items + kv->count);
    sn_status s = sn_file_read_at(g->fd, g->path, kv->offset, bytes, (size_t)kv->bytes);
    size_t at = 0;
    for (uint64_t i = 0; i < kv->count && s == SN_OK; i++) {
        uint64_t n;
        if (kv->bytes - at < 8) n = UINT64_MAX;
        else memcpy(&n, bytes + at, 8);
        if (n > kv->bytes - at - 8) { /* checked at opening: only a file that changed since comes here */
            s = sn_fail(SN_ERR_FORMAT, "%s: key %s: item %" PRIu64 " changed since the file was opened", g->path, key, i);
            break;
        }
        memmove(bytes + at, bytes + at + 8, (size_t)n);
        bytes[at + n] = 0;
        items[i] = (sn_gguf_string){.text = bytes + at, .size = (size_t)n};
        at += 8 + (size_t)n;
    }
    if (s != SN_OK) {
        sn_free(items);
        return s;
    }
    *out = items;
    *count = (size_t)kv->count;
    return SN_OK;
}

static sn_status read_array(const sn_gguf *g, const sn_gguf_kv *kv, uint8_t **out) {
    *out = sn_alloc((size_t)kv->bytes);
    if (!*out) return no_array_memory(g, kv);
    sn_status s = sn_file_read_at(g->fd, g->path, kv->offset, *out, (size_t)kv->bytes);
    if (s != SN_OK) sn_free(*out);
    return s;
}

sn_status sn_gguf_get_i32s(const sn_gguf *g, const char *key, int32_t **out, size_t *count) {
    const sn_gguf_kv *kv;
    uint8_t *raw;
    bool negative = false;
    uint64_t magnitude;
    size_t size;
    SN_TRY(want(g, key, "array of i32", &kv));
    if (kv->type != SN_GGUF_ARRAY || !integer(kv->item_type, (uint8_t[8]){0}, &negative, &magnitude))
        return other_type(g, kv, "array of i32");
    if (!sn_mul((size_t)kv->count, sizeof **out, &size)) return no_array_memory(g, kv);
    SN_TRY(read_array(g, kv, &raw));
    int32_t *items = sn_alloc(size);
    sn_status s = items ? SN_OK : no_array_memory(g, kv);
    size_t width = kv->count ? (size_t)(kv->bytes / kv->count) : 0;
    for (uint64_t i = 0; i < kv->count && s == SN_OK; i++) {
        integer(kv->item_type, raw + i * width, &negative, &magnitude);
        if (magnitude > (uint64_t)INT32_MAX + negative) s = out_of_range(g, kv, "array of i32", negative, magnitude);
        else items[i] = negative ? (int32_t)(0 - (int64_t)magnitude) : (int32_t)magnitude;
    }
    sn_free(raw);
    if (s != SN_OK) {
        sn_free(items);
        return s;
    }
    *out = items;
    *count = (size_t)kv->count;
    return SN_OK;
}

sn_status sn_gguf_get_f32s(const sn_gguf *g, const char *key, float **out, size_t *count) {
    const sn_gguf_kv *kv;
    uint8_t *raw;
    SN_TRY(want(g, key, "array of f32", &kv));
    if (kv->type != SN_GGUF_ARRAY || kv->item_type != SN_GGUF_F32) return other_type(g, kv, "array of f32");
    SN_TRY(read_array(g, kv, &raw));
    *out = (float *)(void *)raw;
    *count = (size_t)kv->count;
    return SN_OK;
}

sn_status sn_gguf_read(const sn_gguf *g, const sn_gguf_tensor *t, uint64_t from, void *data, size_t n) {
    if (from > t->bytes || n > t->bytes - from)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %zu bytes at %" PRIu64 " of %" PRIu64, g->path, t->name, n, from, t->bytes);
    return sn_file_read_at(g->fd, g->path, t->offset + from, data, n);
}
