#include "plan/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef enum order { BY_SIZE, BY_AREA, BY_LIFETIME, BY_START, N_ORDERS } order;

typedef struct item {
    uint64_t key;
    uint32_t index;
} item;

static int by_key_down(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static uint64_t key_of(const sn_block *b, order o) {
    uint64_t length = (uint64_t)b->last - b->first + 1;
    switch (o) {
    case BY_SIZE: return b->bytes;
    case BY_AREA: return b->bytes > UINT64_MAX / length ? UINT64_MAX : b->bytes * length;
    case BY_LIFETIME: return length;
    default: return UINT32_MAX - b->first;
    }
}

/* Blocks that have their offset, by offset: all of them, and those held in each window of instructions. */
typedef struct shelf {
    uint32_t *placed; /* indices */
    size_t n_placed;
    uint32_t *windows; /* indices; those of window w from begin[w] on, count[w] of them */
    size_t *begin, *count;
    size_t n_windows;
} shelf;

enum {
    WINDOW = 64, /* instructions */
    NEAR = 4,    /* windows, at most, that are looked through in place of all */
    MANY = 4000  /* blocks: what is within 1% is good enough */
};

static sn_status shelf_open(const sn_block *blocks, size_t n, shelf *s) {
    uint32_t end = 0;
    for (size_t i = 0; i < n; i++)
        if (blocks[i].last > end) end = blocks[i].last;
    s->n_windows = end / WINDOW + 1;
    s->placed = sn_alloc((n + 1) * sizeof *s->placed);
    s->begin = sn_alloc_zero(s->n_windows + 1, sizeof *s->begin);
    s->count = sn_alloc(s->n_windows * sizeof *s->count);
    if (!s->placed || !s->begin || !s->count) return sn_fail(SN_ERR_NO_MEMORY, "cannot place %zu blocks", n);
    for (size_t i = 0; i < n; i++)
        for (uint32_t w = blocks[i].first / WINDOW; w <= blocks[i].last / WINDOW; w++) s->begin[w + 1]++;
    for (size_t w = 0; w < s->n_windows; w++) s->begin[w + 1] += s->begin[w];
    s->windows = sn_alloc((s->begin[s->n_windows] + 1) * sizeof *s->windows);
    return s->windows ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot place %zu blocks", n);
}

static void shelf_close(shelf *s) {
    sn_free(s->placed);
    sn_free(s->windows);
    sn_free(s->begin);
    sn_free(s->count);
}

static void shelf_clear(shelf *s) {
    s->n_placed = 0;
    memset(s->count, 0, s->n_windows * sizeof *s->count);
}

static void insert(uint32_t *list, size_t *n, const sn_block *blocks, uint32_t index) {
    size_t low = 0, high = *n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[list[middle]].offset <= blocks[index].offset) low = middle + 1;
        else high = middle;
    }
    memmove(list + low + 1, list + low, (*n - low) * sizeof *list);
    list[low] = index;
    ++*n;
}

static void shelf_add(shelf *s, const sn_block *blocks, uint32_t index) {
    insert(s->placed, &s->n_placed, blocks, index);
    for (uint32_t w = blocks[index].first / WINDOW; w <= blocks[index].last / WINDOW; w++)
        insert(s->windows + s->begin[w], &s->count[w], blocks, index);
}

static bool meet(const sn_block *a, const sn_block *b) {
    return a->last >= b->first && a->first <= b->last && a->turns.last >= b->turns.first && a->turns.first <= b->turns.last;
}

static uint64_t aligned(uint64_t at, const sn_block *b) { return b->align ? sn_round_up(at, b->align) : at; }

/* Where a block may lie, given those that are held when it is, by offset. */
typedef struct gap {
    uint64_t at, best, best_bytes; /* at: the end of all so far */
} gap;

static void pass_by(gap *g, const sn_block *p, const sn_block *b) {
    uint64_t from = aligned(g->at, b);
    if (p->offset > from && p->offset - from >= b->bytes && p->offset - from < g->best_bytes) {
        g->best = from;
        g->best_bytes = p->offset - from;
    }
    if (p->offset + p->bytes > g->at) g->at = p->offset + p->bytes;
}

/* What shares the block's few windows, by offset. */
static void pass_windows(gap *g, const sn_block *blocks, const sn_block *b, const shelf *s) {
    const uint32_t from = b->first / WINDOW, to = b->last / WINDOW;
    size_t at[NEAR] = {0};
    for (;;) {
        const sn_block *next = NULL;
        uint32_t where = from;
        for (uint32_t w = from; w <= to; w++) {
            if (at[w - from] == s->count[w]) continue;
            const sn_block *head = &blocks[s->windows[s->begin[w] + at[w - from]]];
            if (next && head->offset >= next->offset) continue;
            next = head;
            where = w;
        }
        if (!next) return;
        at[where - from]++;
        if (meet(next, b)) pass_by(g, next, b); /* of what is in several windows, again and to no effect */
    }
}

/* The smallest gap that fits, else behind all. */
static void place_one(sn_block *blocks, uint32_t index, shelf *s) {
    sn_block *b = &blocks[index];
    gap g = {0, UINT64_MAX, UINT64_MAX};
    if (b->last / WINDOW - b->first / WINDOW < NEAR) pass_windows(&g, blocks, b, s);
    else
        for (size_t i = 0; i < s->n_placed; i++)
            if (meet(&blocks[s->placed[i]], b)) pass_by(&g, &blocks[s->placed[i]], b);
    b->offset = g.best != UINT64_MAX ? g.best : aligned(g.at, b);
    shelf_add(s, blocks, index);
}

static uint64_t place_items(sn_block *blocks, size_t n, const item *items, shelf *s) {
    uint64_t top = 0;
    shelf_clear(s);
    for (size_t i = 0; i < n; i++) {
        place_one(blocks, items[i].index, s);
        const sn_block *b = &blocks[items[i].index];
        if (b->offset + b->bytes > top) top = b->offset + b->bytes;
    }
    return top;
}

static void keep_best(const sn_block *blocks, size_t n, uint64_t *best) {
    for (size_t i = 0; i < n; i++) best[i] = blocks[i].offset;
}

/* Blocks that reach the top go first in the next round: they are the ones that found no room. */
static void promote(sn_block *blocks, size_t n, item *items, uint64_t top) {
    size_t front = 0;
    for (size_t i = 0; i < n; i++) {
        const sn_block *b = &blocks[items[i].index];
        if (b->offset + b->bytes < top) continue;
        item moving = items[i];
        memmove(items + front + 1, items + front, (i - front) * sizeof *items);
        items[front++] = moving;
    }
}

/* The largest sum of what is held at once. It is found in a turn in which something begins to be held. */
static sn_status live_maximum(const sn_block *blocks, size_t n, uint64_t *bound) {
    uint32_t end = 0;
    bool begins[UINT16_MAX + 1] = {0};
    *bound = 0;
    for (size_t i = 0; i < n; i++) {
        if (blocks[i].last > end) end = blocks[i].last;
        begins[blocks[i].turns.first] |= blocks[i].turns.first <= blocks[i].turns.last;
    }
    int64_t *change = sn_alloc(((size_t)end + 2) * sizeof *change);
    if (!change) return sn_fail(SN_ERR_NO_MEMORY, "cannot place %zu blocks", n);
    for (int turn = 0; turn <= UINT16_MAX; turn++) {
        if (!begins[turn]) continue;
        memset(change, 0, ((size_t)end + 2) * sizeof *change);
        for (size_t i = 0; i < n; i++) {
            if (!sn_in_turn(blocks[i].turns, turn)) continue;
            change[blocks[i].first] += (int64_t)blocks[i].bytes;
            change[blocks[i].last + 1] -= (int64_t)blocks[i].bytes;
        }
        int64_t live = 0;
        for (uint32_t t = 0; t <= end; t++) {
            live += change[t];
            if ((uint64_t)live > *bound) *bound = (uint64_t)live;
        }
    }
    sn_free(change);
    return SN_OK;
}

sn_status sn_place(sn_block *blocks, size_t n, uint64_t most, uint64_t *arena, bool *rough) {
    *arena = 0;
    if (!n) return SN_OK;
    shelf s = {0};
    item *items = sn_alloc(n * sizeof *items);
    uint64_t *offsets = sn_alloc(n * sizeof *offsets); /* the best so far */
    sn_status status = items && offsets ? shelf_open(blocks, n, &s) : sn_fail(SN_ERR_NO_MEMORY, "cannot place %zu blocks", n);
    uint64_t bound = 0, best = UINT64_MAX;
    if (status == SN_OK) status = live_maximum(blocks, n, &bound);
    if (status == SN_OK && bound > most) {
        *rough = true;
        best = bound;
        for (size_t i = 0; i < n; i++) offsets[i] = 0;
    }
    for (int o = 0; status == SN_OK && o < N_ORDERS && best > bound; o++) {
        for (size_t i = 0; i < n; i++) items[i] = (item){key_of(&blocks[i], (order)o), (uint32_t)i};
        qsort(items, n, sizeof *items, by_key_down);
        const int rounds = n > MANY ? 2 : 12;
        const uint64_t good = n > MANY ? bound + bound / 100 : bound;
        for (int round = 0; round < rounds && best > good; round++) {
            uint64_t top = place_items(blocks, n, items, &s);
            if (top < best) {
                best = top;
                keep_best(blocks, n, offsets);
            }
            promote(blocks, n, items, top);
        }
        if (best <= bound + bound / 100) break;
    }
    if (status == SN_OK) {
        for (size_t i = 0; i < n; i++) blocks[i].offset = offsets[i];
        *arena = best;
    }
    sn_free(items);
    sn_free(offsets);
    shelf_close(&s);
    return status;
}
