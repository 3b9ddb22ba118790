/* Movement ahead of its use: what a queue of its own brings is brought early, into bytes that are free until then. */
#ifndef SN_PLAN_AHEAD_H
#define SN_PLAN_AHEAD_H

#include "plan/plan.h"

typedef struct sn_ahead {
    const sn_graph *g;
    const uint64_t *bytes;               /* by value */
    const uint64_t *live[SN_TIER_COUNT]; /* by position in `order`: bytes alive there */
    uint64_t most[SN_TIER_COUNT];        /* that may be alive */
    uint64_t window;                     /* bytes that may be on their way at any time */
} sn_ahead;

/* Permutes the order: a value that is brought from another tier is brought as early as what it is brought from is there, as live bytes stay
 * within `most`, and as no more than `window` bytes wait for their use; values are brought in the order of before. Nothing else
 * moves. *moved: whether anything did. */
sn_status sn_plan_ahead(const sn_ahead *a, sn_nid *order, size_t n, bool *moved);

#endif
