#include "io/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum {
    WINDOW = 1 << 16,
    MAX_NAME = 65535,     /* keys, by the format; tensor names have no stated limit and get the same */
    MAX_STRING = 1 << 26, /* a single string value: chat templates take kilobytes, an embedded tokenizer.json megabytes */
    MAX_ALIGNMENT = 1 << 20,
    GGUF_MAX_DIMS = 4,
    MIN_KV_BYTES = 8 + 4 + 1,        /* empty key, type, u8 */
    MIN_TENSOR_BYTES = 8 + 4 + 4 + 8 /* empty name, no dimensions, type, offset */
};

/* Sequential reading through a small window. */
typedef struct input {
    sn_gguf *g;
    uint64_t at;
    uint64_t window_at;
    size_t window_size;
    uint8_t *window;
} input;

static uint64_t left(const input *in) { return in->g->size - in->at; }

/* `what` and `name` describe the item for messages: "key", "llama.block_count". */
static sn_status take(input *in, void *out, size_t n, const char *what, const char *name) {
    if (left(in) < n) return sn_fail(SN_ERR_FORMAT, "%s: file ends inside %s %.200s", in->g->path, what, name);
    char *to = out;
    while (n) {
        if (in->at < in->window_at || in->at >= in->window_at + in->window_size) {
            in->window_at = in->at;
            in->window_size = left(in) < WINDOW ? (size_t)left(in) : WINDOW;
            SN_TRY(sn_file_read_at(in->g->fd, in->g->path, in->at, in->window, in->window_size));
        }
        size_t from = (size_t)(in->at - in->window_at), some = in->window_size - from;
        if (some > n) some = n;
        memcpy(to, in->window + from, some);
        to += some;
        in->at += some;
        n -= some;
    }
    return SN_OK;
}

static sn_status take_u32(input *in, uint32_t *out, const char *what, const char *name) { return take(in, out, 4, what, name); }
static sn_status take_u64(input *in, uint64_t *out, const char *what, const char *name) { return take(in, out, 8, what, name); }

/* A key or tensor name; ordinal stands in the message because there is no name yet. */
static sn_status take_name(input *in, sn_names *set, const char *what, uint64_t ordinal, const char **out) {
    char number[24];
    uint64_t n;
    size_t index;
    bool added;
    snprintf(number, sizeof number, "%" PRIu64, ordinal);
    SN_TRY(take_u64(in, &n, what, number));
    if (n > MAX_NAME || n > left(in))
        return sn_fail(SN_ERR_FORMAT, "%s: name of %s %s has %" PRIu64 " bytes, more than %s", in->g->path, what, number, n,
                       n > MAX_NAME ? "65535" : "the file holds");
    char *text = sn_alloc((size_t)n + 1);
    if (!text) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a name", in->g->path);
    sn_status s = take(in, text, (size_t)n, what, number);
    text[n] = 0;
    if (s == SN_OK && memchr(text, 0, (size_t)n))
        s = sn_fail(SN_ERR_FORMAT, "%s: name of %s %s holds a NUL byte", in->g->path, what, number);
    if (s == SN_OK) s = sn_names_add(set, text, (size_t)n, &index, &added);
    if (s == SN_OK && !added) s = sn_fail(SN_ERR_FORMAT, "%s: duplicate %s %.200s", in->g->path, what, text);
    if (s == SN_OK) *out = set->items[index].text;
    sn_free(text);
    return s;
}

static size_t type_bytes(uint32_t type) {
    static const uint8_t bytes[] = {
#define X(id, size, name) size,
        SN_GGUF_TYPE_LIST(X)
#undef X
    };
    return type < SN_GGUF_TYPE_COUNT ? bytes[type] : 0;
}

const char *sn_gguf_type_name(uint32_t type) {
    static const char *const names[] = {
#define X(id, size, name) name,
        SN_GGUF_TYPE_LIST(X)
#undef X
    };
    return type < SN_GGUF_TYPE_COUNT ? names[type] : "?";
}

const char *sn_ggml_type_name(uint32_t type) {
    static const char *const names[] = {"F32",    "F16",   "Q4_0",  "Q4_1",   NULL,    NULL,    "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
                                        "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
                                        "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
                                        "BF16",   NULL,    NULL,    NULL,     "TQ1_0", "TQ2_0", NULL,      NULL,     NULL,      "MXFP4"};
    return type < sizeof names / sizeof *names ? names[type] : NULL;
}

static sn_status take_string_value(input *in, sn_gguf_kv *kv) {
    SN_TRY(take_u64(in, &kv->count, "key", kv->key));
    kv->offset = in->at;
    kv->bytes = kv->count;
    if (kv->count > left(in))
        return sn_fail(SN_ERR_FORMAT, "%s: key %.200s: string of %" PRIu64 " bytes, but the file has %" PRIu64 " more", in->g->path,
                       kv->key, kv->count, left(in));
    if (kv->count > MAX_STRING)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: key %.200s: string of %" PRIu64 " bytes, more than %d", in->g->path, kv->key, kv->count,
                       MAX_STRING);
    char *text = sn_pool_alloc(&in->g->pool, (size_t)kv->count + 1);
    if (!text) return sn_fail(SN_ERR_NO_MEMORY, "%s: key %.200s: cannot allocate %" PRIu64 " bytes", in->g->path, kv->key, kv->count);
    kv->string = text;
    return take(in, text, (size_t)kv->count, "key", kv->key);
}

/* Passes over an array's items after checking that the file holds them. */
static sn_status pass_array(input *in, sn_gguf_kv *kv) {
    uint32_t item_type;
    uint64_t bytes;
    SN_TRY(take_u32(in, &item_type, "key", kv->key));
    SN_TRY(take_u64(in, &kv->count, "key", kv->key));
    if (item_type >= SN_GGUF_TYPE_COUNT)
        return sn_fail(SN_ERR_FORMAT, "%s: key %.200s: unknown array item type %u", in->g->path, kv->key, item_type);
    if (item_type == SN_GGUF_ARRAY) return sn_fail(SN_ERR_UNSUPPORTED, "%s: key %.200s: array of arrays", in->g->path, kv->key);
    kv->item_type = (sn_gguf_type)item_type;
    kv->offset = in->at;
    size_t least = item_type == SN_GGUF_STRING ? 8 : type_bytes(item_type);
    if (__builtin_mul_overflow(kv->count, (uint64_t)least, &bytes) || bytes > left(in))
        return sn_fail(SN_ERR_FORMAT, "%s: key %.200s: array of %" PRIu64 " %s, but the file has %" PRIu64 " more bytes", in->g->path,
                       kv->key, kv->count, sn_gguf_type_name(item_type), left(in));
    if (item_type != SN_GGUF_STRING) {
        in->at += bytes;
    } else {
        for (uint64_t i = 0; i < kv->count; i++) {
            uint64_t n;
            SN_TRY(take_u64(in, &n, "key", kv->key));
            if (n > left(in))
                return sn_fail(SN_ERR_FORMAT, "%s: key %.200s: item %" PRIu64 " has %" PRIu64 " bytes, but the file has %" PRIu64 " more",
                               in->g->path, kv->key, i, n, left(in));
            in->at += n;
        }
    }
    kv->bytes = in->at - kv->offset;
    return SN_OK;
}

static sn_status take_kv(input *in, uint64_t ordinal, sn_gguf_kv *kv) {
    uint32_t type;
    *kv = (sn_gguf_kv){.count = 1};
    SN_TRY(take_name(in, &in->g->keys, "key", ordinal, &kv->key));
    SN_TRY(take_u32(in, &type, "key", kv->key));
    if (type >= SN_GGUF_TYPE_COUNT) return sn_fail(SN_ERR_FORMAT, "%s: key %.200s: unknown value type %u", in->g->path, kv->key, type);
    kv->type = (sn_gguf_type)type;
    if (type == SN_GGUF_STRING) return take_string_value(in, kv);
    if (type == SN_GGUF_ARRAY) return pass_array(in, kv);
    kv->offset = in->at;
    kv->bytes = type_bytes(type);
    SN_TRY(take(in, kv->scalar, (size_t)kv->bytes, "key", kv->key));
    if (type == SN_GGUF_BOOL && kv->scalar[0] > 1)
        return sn_fail(SN_ERR_FORMAT, "%s: key %.200s: wanted a bool (0 or 1), found %u", in->g->path, kv->key, kv->scalar[0]);
    return SN_OK;
}

static sn_status read_alignment(sn_gguf *g) {
    g->alignment = 32;
    const sn_gguf_kv *kv = sn_gguf_find(g, "general.alignment");
    if (!kv) return SN_OK;
    if (kv->type != SN_GGUF_U32)
        return sn_fail(SN_ERR_FORMAT, "%s: key general.alignment: wanted u32, found %s", g->path, sn_gguf_type_name(kv->type));
    memcpy(&g->alignment, kv->scalar, 4);
    if (g->alignment < 8 || g->alignment > MAX_ALIGNMENT || g->alignment & (g->alignment - 1))
        return sn_fail(SN_ERR_FORMAT, "%s: key general.alignment: wanted a power of two from 8 to %d, found %u", g->path, MAX_ALIGNMENT,
                       g->alignment);
    return SN_OK;
}

static sn_status take_dims(input *in, sn_gguf_tensor *t) {
    uint32_t dims;
    uint64_t extent;
    SN_TRY(take_u32(in, &dims, "tensor", t->name));
    if (dims > GGUF_MAX_DIMS)
        return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s: %u dimensions, the format has at most %d", in->g->path, t->name, dims,
                       GGUF_MAX_DIMS);
    t->shape = (sn_shape){.rank = dims ? (int)dims : 1, .d = {1}};
    for (uint32_t i = 0; i < dims; i++) {
        SN_TRY(take_u64(in, &extent, "tensor", t->name));
        if (extent > INT64_MAX)
            return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s: dimension %u is %" PRIu64, in->g->path, t->name, i, extent);
        t->shape.d[dims - 1 - i] = (int64_t)extent;
    }
    return SN_OK;
}

static sn_status take_tensor(input *in, uint64_t ordinal, sn_gguf_tensor *t) {
    const char *path = in->g->path;
    uint32_t type;
    size_t bytes;
    char text[96];
    *t = (sn_gguf_tensor){0};
    SN_TRY(take_name(in, &in->g->names, "tensor", ordinal, &t->name));
    SN_TRY(take_dims(in, t));
    SN_TRY(take_u32(in, &type, "tensor", t->name));
    SN_TRY(take_u64(in, &t->offset, "tensor", t->name));
    if (!sn_dtype_by_gguf(type, &t->dtype)) {
        const char *known = sn_ggml_type_name(type);
        if (known) return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %.200s has type %s, which snug cannot read", path, t->name, known);
        return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s has the unknown type %u", path, t->name, type);
    }
    if (t->shape.d[t->shape.rank - 1] % sn_dtypes[t->dtype].block)
        return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s: rows of %" PRId64 " are no whole number of %s blocks of %d", path, t->name,
                       t->shape.d[t->shape.rank - 1], sn_dtype_name(t->dtype), sn_dtypes[t->dtype].block);
    if (!sn_shape_bytes(&t->shape, t->dtype, &bytes))
        return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s: the size of %s %s overflows", path, t->name, sn_dtype_name(t->dtype),
                       sn_shape_text(&t->shape, text));
    t->bytes = bytes;
    if (t->offset % in->g->alignment)
        return sn_fail(SN_ERR_FORMAT, "%s: tensor %.200s: offset %" PRIu64 " is no multiple of the alignment %u", path, t->name, t->offset,
                       in->g->alignment);
    return SN_OK;
}

static int by_offset(const void *a, const void *b) {
    const sn_gguf_tensor *const *x = a, *const *y = b;
    if ((*x)->offset != (*y)->offset) return (*x)->offset < (*y)->offset ? -1 : 1;
    return (*x)->bytes < (*y)->bytes ? -1 : (*x)->bytes > (*y)->bytes; /* empty tensors share an offset with the next */
}

/* Makes offsets absolute; every tensor inside the file, none over another. */
static sn_status place_tensors(sn_gguf *g) {
    uint64_t data_bytes = g->size > g->data_start ? g->size - g->data_start : 0;
    for (size_t i = 0; i < g->tensor_count; i++) {
        sn_gguf_tensor *t = &g->tensors[i];
        if (t->bytes > data_bytes || t->offset > data_bytes - t->bytes)
            return sn_fail(SN_ERR_FORMAT,
                           "%s: tensor %.200s: %" PRIu64 " bytes at %" PRIu64 ", but the file holds %" PRIu64 " bytes of data", g->path,
                           t->name, t->bytes, t->offset, data_bytes);
        t->offset += g->data_start;
    }
    const sn_gguf_tensor **order = sn_alloc(g->tensor_count * sizeof *order);
    if (!order) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate the order of %zu tensors", g->path, g->tensor_count);
    for (size_t i = 0; i < g->tensor_count; i++) order[i] = &g->tensors[i];
    qsort(order, g->tensor_count, sizeof *order, by_offset);
    sn_status s = SN_OK;
    for (size_t i = 1; i < g->tensor_count && s == SN_OK; i++)
        if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
            s = sn_fail(SN_ERR_FORMAT, "%s: tensors %.200s and %.200s overlap", g->path, order[i - 1]->name, order[i]->name);
    sn_free(order);
    return s;
}

static sn_status read_header(input *in, uint64_t *tensors, uint64_t *keys) {
    const char *path = in->g->path;
    char magic[4];
    if (in->g->size < 24) return sn_fail(SN_ERR_FORMAT, "%s: %" PRIu64 " bytes are too few for a GGUF header", path, in->g->size);
    SN_TRY(take(in, magic, 4, "the", "header"));
    if (memcmp(magic, "GGUF", 4)) return sn_fail(SN_ERR_FORMAT, "%s is no GGUF file (it does not begin with \"GGUF\")", path);
    SN_TRY(take_u32(in, &in->g->version, "the", "header"));
    if (in->g->version && !(in->g->version & 0xffff)) return sn_fail(SN_ERR_UNSUPPORTED, "%s: big-endian GGUF", path);
    if (in->g->version != 2 && in->g->version != 3)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: GGUF version %u (wanted 2 or 3)", path, in->g->version);
    SN_TRY(take_u64(in, tensors, "the", "header"));
    SN_TRY(take_u64(in, keys, "the", "header"));
    if (*keys > left(in) / MIN_KV_BYTES)
        return sn_fail(SN_ERR_FORMAT, "%s: header declares %" PRIu64 " keys, more than the file can hold", path, *keys);
    if (*tensors > left(in) / MIN_TENSOR_BYTES)
        return sn_fail(SN_ERR_FORMAT, "%s: header declares %" PRIu64 " tensors, more than the file can hold", path, *tensors);
    return SN_OK;
}

static sn_status read_tables(input *in) {
    sn_gguf *g = in->g;
    uint64_t tensors, keys;
    SN_TRY(read_header(in, &tensors, &keys));
    for (uint64_t i = 0; i < keys; i++) {
        SN_TRY(SN_GROW(g->kv, g->kv_count, g->kv_capacity));
        SN_TRY(take_kv(in, i, &g->kv[g->kv_count]));
        g->kv_count++;
    }
    SN_TRY(read_alignment(g));
    for (uint64_t i = 0; i < tensors; i++) {
        SN_TRY(SN_GROW(g->tensors, g->tensor_count, g->tensor_capacity));
        SN_TRY(take_tensor(in, i, &g->tensors[g->tensor_count]));
        g->tensor_count++;
    }
    g->data_start = (in->at + g->alignment - 1) / g->alignment * g->alignment;
    return place_tensors(g);
}

sn_status sn_gguf_open(const char *path, sn_gguf *g) {
    *g = (sn_gguf){.fd = -1};
    input in = {.g = g, .window = sn_alloc(WINDOW)};
    g->path = sn_strdup(path);
    sn_status s = in.window && g->path ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a reader", path);
    if (s == SN_OK) s = sn_file_open(path, &g->fd, &g->size);
    if (s == SN_OK) s = read_tables(&in);
    sn_free(in.window);
    if (s != SN_OK) sn_gguf_close(g);
    return s;
}

void sn_gguf_close(sn_gguf *g) {
    if (g->path && g->fd >= 0) close(g->fd);
    sn_free(g->path);
    sn_free(g->kv);
    sn_free(g->tensors);
    sn_names_free(&g->keys);
    sn_names_free(&g->names);
    sn_pool_free(&g->pool);
    *g = (sn_gguf){.fd = -1};
}
