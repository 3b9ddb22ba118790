/* Placement of blocks with known lifetimes in one arena (dynamic storage allocation, offline). */
#ifndef SN_PLAN_PLACE_H
#define SN_PLAN_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "program/program.h"

typedef struct sn_block {
    uint32_t first, last; /* instructions during which its bytes are held, inclusive */
    uint64_t bytes;       /* a multiple of SN_ALIGN */
    uint64_t offset;      /* result */
    sn_turn_span turns;   /* in which they are held */
    uint32_t align;       /* of the offset, a power of two; 0: SN_ALIGN */
} sn_block;

enum { SN_ALIGN = 64 };

/* Sets every block's offset so that no two blocks that live at once, in the same turn, overlap; *arena is the end of the highest block.
 * Tries several orders (size, area, lifetime, start), then improves the best by moving the blocks at the top first.
 * Where more than `most` bytes live at once, no offset is looked for: *arena is that many, and *rough is set. */
sn_status sn_place(sn_block *blocks, size_t n, uint64_t most, uint64_t *arena, bool *rough);

#endif
