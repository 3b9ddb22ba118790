/* Memory for metadata, and checked sizes.
 *
 * Tensor memory never comes from here: it comes from the arenas that a plan laid out (run/). */
#ifndef SN_BASE_MEM_H
#define SN_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* malloc, calloc, realloc and free of the library. NULL when memory is gone, or when the test hook says so. */
void *sn_alloc(size_t bytes);
void *sn_alloc_zero(size_t count, size_t size);
void *sn_realloc(void *p, size_t bytes);
void sn_free(void *p);
char *sn_strdup(const char *s);
char *sn_strndup(const char *s, size_t n);

/* While this thread runs a program nothing may be allocated: an allocation is a fault of the library, and asserted not to be.
 * Returns what held before. */
bool sn_alloc_forbid(bool forbidden);
bool sn_alloc_is_forbidden(void);

/* Test hook: the n-th allocation from now (0 = the next) fails, once; n < 0 switches it off.
 * Returns the number of allocations made since the last call. Process-wide. */
long sn_alloc_fail_at(long n);

/* Checked sizes: false when the result does not fit. */
static inline bool sn_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool sn_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool sn_mul_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }

static inline size_t sn_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* A growing block of small allocations that are released together. Zero-initialise to start.
 * sn_pool_alloc returns zeroed memory aligned to 16, or NULL. */
typedef struct sn_pool {
    struct sn_pool_chunk *chunks;
    size_t used, size; /* of the newest chunk */
    size_t total;      /* bytes of all chunks */
} sn_pool;
void *sn_pool_alloc(sn_pool *p, size_t bytes);
char *sn_pool_strdup(sn_pool *p, const char *s);
char *sn_pool_printf(sn_pool *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sn_pool_free(sn_pool *p);

/* Makes room for one more element in a growing array: SN_GROW(items, count, capacity) is SN_OK or SN_ERR_NO_MEMORY. */
sn_status sn_grow(void **items, size_t count, size_t *capacity, size_t item_size);
#define SN_GROW(items, count, capacity) sn_grow((void **)&(items), (count), &(capacity), sizeof *(items))

/* Gives back the room beyond `count` elements: SN_SHRINK(items, count, capacity). Where that cannot be, it stays. */
void sn_shrink(void **items, size_t count, size_t *capacity, size_t item_size);
#define SN_SHRINK(items, count, capacity) sn_shrink((void **)&(items), (count), &(capacity), sizeof *(items))

#endif
