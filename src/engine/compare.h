/* One job under each technique: what each choice of the passes' entries alone would change. */
#ifndef SN_ENGINE_COMPARE_H
#define SN_ENGINE_COMPARE_H

#include "engine/budget.h"

typedef struct sn_compared {
    const char *pass; /* name; NULL: the job as it is */
    char change[128]; /* "--moment-dtype bf16" */
    sn_choice_kind kind;
    char reason[256]; /* why it cannot be planned; "": it was, and the rest holds */
    uint64_t by_tier[SN_TIER_COUNT], total;
    bool over;      /* more than the budget, in some tier */
    int rank;       /* the largest */
    double seconds; /* of a step, estimated */
} sn_compared;

typedef struct sn_comparison {
    sn_compared *rows; /* the first is the job as it is */
    size_t n;
    bool measured;    /* rates are known; false: seconds are good for comparing rows only */
    bool stated;      /* there is a budget */
    sn_limits limits; /* UINT64_MAX: none was stated */
} sn_comparison;

/* Plans the training job of `recipe` as it is and with each choice of each pass set alone; left out are choices that the recipe has made,
 * those that make no sense beside it, and those of passes whose matter it has decided. A choice that is illegal there is a row with a
 * reason. */
sn_status sn_compare_training(sn_model *model, const sn_options *recipe, sn_comparison *out);
void sn_comparison_free(sn_comparison *c);

/* As a table / as JSON. */
void sn_comparison_print(const sn_comparison *c, sn_str *out);
void sn_comparison_json(const sn_comparison *c, sn_str *out);

#endif
