#include "base/mem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long fail_at = -1;
static atomic_long calls;
static _Thread_local bool forbidden;

bool sn_alloc_forbid(bool on) {
    bool before = forbidden;
    forbidden = on;
    return before;
}

bool sn_alloc_is_forbidden(void) { return forbidden; }

static bool must_fail(void) {
    assert(!forbidden);
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_at, memory_order_relaxed) < 0) return false;
    return atomic_fetch_sub(&fail_at, 1) == 0;
}

long sn_alloc_fail_at(long n) {
    atomic_store(&fail_at, n);
    return atomic_exchange(&calls, 0);
}

void *sn_alloc(size_t bytes) { return must_fail() ? NULL : malloc(bytes ? bytes : 1); }

void *sn_alloc_zero(size_t count, size_t size) { return must_fail() ? NULL : calloc(count ? count : 1, size ? size : 1); }

void *sn_realloc(void *p, size_t bytes) { return must_fail() ? NULL : realloc(p, bytes ? bytes : 1); }

void sn_free(void *p) { free(p); }

char *sn_strndup(const char *s, size_t n) {
    char *copy = sn_alloc(n + 1);
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = 0;
    return copy;
}

char *sn_strdup(const char *s) { return sn_strndup(s, strlen(s)); }

struct sn_pool_chunk {
    struct sn_pool_chunk *next;
    _Alignas(16) char bytes[];
};

void *sn_pool_alloc(sn_pool *p, size_t bytes) {
    bytes = sn_round_up(bytes ? bytes : 1, 16);
    if (!p->chunks || p->size - p->used < bytes) {
        size_t size = bytes > 16384 ? bytes : 16384;
        struct sn_pool_chunk *chunk = sn_alloc_zero(1, sizeof *chunk + size);
        if (!chunk) return NULL;
        chunk->next = p->chunks;
        p->chunks = chunk;
        p->used = 0;
        p->size = size;
        p->total += size;
    }
    void *at = p->chunks->bytes + p->used;
    p->used += bytes;
    return at;
}

char *sn_pool_strdup(sn_pool *p, const char *s) {
    size_t n = strlen(s) + 1;
    char *copy = sn_pool_alloc(p, n);
    return copy ? memcpy(copy, s, n) : NULL;
}

char *sn_pool_printf(sn_pool *p, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : sn_pool_alloc(p, (size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void sn_pool_free(sn_pool *p) {
    while (p->chunks) {
        struct sn_pool_chunk *next = p->chunks->next;
        sn_free(p->chunks);
        p->chunks = next;
    }
    p->used = p->size = p->total = 0;
}

sn_status sn_grow(void **items, size_t count, size_t *capacity, size_t item_size) {
    if (count < *capacity) return SN_OK;
    size_t want = *capacity ? *capacity * 2 : 16, bytes;
    if (!sn_mul(want, item_size, &bytes)) return sn_fail(SN_ERR_NO_MEMORY, "array of %zu items is too large", want);
    void *p = sn_realloc(*items, bytes);
    if (!p) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %zu bytes", bytes);
    *items = p;
    *capacity = want;
    return SN_OK;
}

void sn_shrink(void **items, size_t count, size_t *capacity, size_t item_size) {
    void *p = *items && count && count < *capacity ? realloc(*items, count * item_size) : NULL;
    if (!p) return;
    *items = p;
    *capacity = count;
}
