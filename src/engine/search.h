/* The search: changes of a recipe, as products of the passes' choices (passes/pass.h) and smaller micro-batches, that fit the budget.
 *
 * A candidate that is looked at is really built and planned. One is passed over only when bounds that follow from plans already made say
 * that it cannot fit, or cannot be faster than what was found; docs/plan.md has the argument. */
#ifndef SN_ENGINE_SEARCH_H
#define SN_ENGINE_SEARCH_H

#include "engine/budget.h"
#include "passes/pass.h"

enum { SN_SEARCH_KEPT = 3, SN_SEARCH_MOST = 3 << 19 /* instructions in all plans: some 100 plans of 80 layers */ };

typedef struct sn_found {
    char change[256]; /* "--zero-stage 3 --moment-dtype bf16" */
    sn_choice_kind kind;
    uint64_t need[SN_HOLD_COUNT];
    double seconds;     /* of a step, estimated */
    size_t place;       /* in the order of the space: of equals the milder change is taken */
    sn_options *recipe; /* the search's; NULL where the job was left as it is */
} sn_found;

typedef struct sn_search {
    sn_found fits[SN_SEARCH_KEPT]; /* the fastest that fit, of the first kind that has one */
    int n_fits;
    sn_found smallest;          /* of those planned, by a rank's memory; change "": none was */
    size_t considered, planned; /* candidates of the kinds that were looked through; plans made */
    bool measured;              /* by rates that were measured */
    bool cut;                   /* some kind was left at SN_SEARCH_MOST, exact and reordered ones at half of it */
} sn_search;

/* session: the job as it is, planned. most: the furthest kind. exhaustive: plans every candidate (the tests' oracle). Collective over the
 * session's world, whose ranks all have to plan for the same rank. */
sn_status sn_search_run(sn_model *model, const sn_options *recipe, const sn_session *session, const sn_limits *limits, sn_choice_kind most,
                        bool exhaustive, sn_search *out);
void sn_search_free(sn_search *s);

/* Appends "--key value" (of a switch that is on, "--key") to a text of `size` bytes; what does not fit is cut off. */
void sn_note_option(char *text, size_t size, const char *key, const char *value);
/* All settings of a choice, in the text (may be NULL) and in the recipe. */
sn_status sn_choose(sn_options *recipe, const sn_choice *choice, char *text, size_t size);

#endif
