/* Making a job fit its budget: candidates are really built and planned, and the fastest that fits is taken. */
#ifndef SN_ENGINE_FIT_H
#define SN_ENGINE_FIT_H

#include "engine/session.h"

/* Plans the training job of `recipe` into *session; when it is over the budget and `fit` is on or any, looks for the
 * cheapest change among the products of the passes' choices (passes/pass.h) and smaller micro-batches: bit-exact ones
 * first, then the same step in smaller micro-batches, then, with any, other forms. Among the candidates of the first kind
 * that has one that fits, the fastest by op costs and the machine's probe is taken, and *session is its job. *chosen is the
 * changed recipe (sn_options_close), or NULL when nothing was changed; what was chosen, and the next two, are logged.
 * SN_ERR_BUDGET when nothing fits, or when fit is off: the message has the bytes missing and the cheapest change that would
 * fit. On failure *session is closed. Collective over the processes of `world` (may be NULL): all decide for rank 0, whose plan is
 * the largest, and by rank 0's probe and the smallest budget; then *session is this rank's own. */
sn_status sn_fit_training(sn_model *model, const sn_options *recipe, const sn_world *world, sn_session *session, sn_options **chosen);

/* Appends "--key value" (of a switch that is on, "--key") to a text of `size` bytes; what does not fit is cut off. */
void sn_note_option(char *text, size_t size, const char *key, const char *value);

#endif
