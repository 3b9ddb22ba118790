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

typedef struct scratch {
    item *items;
    uint32_t *placed; /* indices of placed blocks by offset */
    uint64_t *best;
} scratch;

static uint64_t aligned(uint64_t at, const sn_block *b) { return b->align ? sn_round_up(at, b->align) : at; }

/* Lowest offset that fits: walks the placed blocks that live at the same time, by offset. */
static void place_one(sn_block *blocks, uint32_t index, uint32_t *placed, size_t *n_placed) {
    sn_block *b = &blocks[index];
    uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (size_t i = 0; i < *n_placed; i++) {
        const sn_block *p = &blocks[placed[i]];
        if (p->last < b->first || p->first > b->last || p->turns.last < b->turns.first || p->turns.first > b->turns.last) continue;
        uint64_t from = aligned(at, b);
        if (p->offset > from && p->offset - from >= b->bytes && p->offset - from < best_gap) {
            best = from;
            best_gap = p->offset - from;
        }
        if (p->offset + p->bytes > at) at = p->offset + p->bytes;
    }
    b->offset = best != UINT64_MAX ? best : aligned(at, b);
    size_t low = 0, high = *n_placed;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[placed[middle]].offset <= b->offset) low = middle + 1;
        else high = middle;
    }
    memmove(placed + low + 1, placed + low, (*n_placed - low) * sizeof *placed);
    placed[low] = index;
    ++*n_placed;
}

static uint64_t place_items(sn_block *blocks, size_t n, const item *items, uint32_t *placed) {
    uint64_t top = 0;
    size_t n_placed = 0;
    for (size_t i = 0; i < n; i++) {
        place_one(blocks, items[i].index, placed, &n_placed);
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
    scratch s = {.items = sn_alloc(n * sizeof *s.items), .placed = sn_alloc((n + 1) * sizeof *s.placed), .best = sn_alloc(n * sizeof *s.best)};
    sn_status status = s.items && s.placed && s.best ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot place %zu blocks", n);
    uint64_t bound = 0, best = UINT64_MAX;
    if (status == SN_OK) status = live_maximum(blocks, n, &bound);
    if (status == SN_OK && bound > most) {
        *rough = true;
        best = bound;
        for (size_t i = 0; i < n; i++) s.best[i] = 0;
    }
    for (int o = 0; status == SN_OK && o < N_ORDERS && best > bound; o++) {
        for (size_t i = 0; i < n; i++) s.items[i] = (item){key_of(&blocks[i], (order)o), (uint32_t)i};
        qsort(s.items, n, sizeof *s.items, by_key_down);
        int rounds = n > 4000 ? 2 : 12;
        for (int round = 0; round < rounds && best > bound; round++) {
            uint64_t top = place_items(blocks, n, s.items, s.placed);
            if (top < best) {
                best = top;
                keep_best(blocks, n, s.best);
            }
            promote(blocks, n, s.items, top);
        }
        if (best <= bound + bound / 100) break;
    }
    if (status == SN_OK) {
        for (size_t i = 0; i < n; i++) blocks[i].offset = s.best[i];
        *arena = best;
    }
    sn_free(s.items);
    sn_free(s.placed);
    sn_free(s.best);
    return status;
}
