/* Making a job fit its budget: candidates are really built and planned, and the fastest that fits is taken. */
#ifndef SN_ENGINE_FIT_H
#define SN_ENGINE_FIT_H

#include "engine/search.h"

/* What a fit did; all zero: the job fits as it is, or no fit was asked for. */
typedef struct sn_fit {
    sn_search search;                                 /* fits[0] was taken, the others come next; their recipes are closed */
    uint64_t was[SN_HOLD_COUNT], most[SN_HOLD_COUNT]; /* what the job as it is needs; the budget */
} sn_fit;

/* Plans the training job of `recipe` into *session; when it is over the budget (budget.h) and `fit` is on or any, looks for the
 * cheapest change (search.h): bit-exact ones first, then the same step in smaller micro-batches, then, with any, other forms. Among the
 * candidates of the first kind that has one that fits, the fastest by the estimate is taken, and *session is its job. *chosen is the
 * changed recipe (sn_options_close), or NULL when nothing was changed. *fit (may be NULL) says what was chosen, the next two, and why.
 * SN_ERR_BUDGET when nothing fits, or when fit is off: the message has the bytes missing in each tier and the cheapest change that would
 * fit. On failure *session is closed. Collective over the processes of `world` (may be NULL): all decide for rank 0, whose plan is
 * the largest, and by rank 0's rates and the smallest budget; then *session is this rank's own. */
sn_status sn_fit_training(sn_model *model, const sn_options *recipe, const sn_world *world, sn_session *session, sn_options **chosen,
                          sn_fit *fit);

/* What was chosen, the next two, and why: lines, or a JSON object. Nothing where nothing was changed (JSON: null). */
void sn_fit_print(const sn_fit *f, sn_str *out);
void sn_fit_json(const sn_fit *f, sn_str *out);

#endif
