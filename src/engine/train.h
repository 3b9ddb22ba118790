/* Training: data, programs, schedule, checkpoints, export. */
#ifndef SN_ENGINE_TRAIN_H
#define SN_ENGINE_TRAIN_H

#include <signal.h>

#include "engine/progress.h"
#include "engine/session.h"

struct sn_fit;

typedef struct sn_train_hooks {
    /* After planning, before any allocation: the job, its recipe (changed by the fit), what the fit did. May be NULL. */
    void (*planned)(void *context, const sn_session *session, const sn_options *recipe, const struct sn_fit *fit);
    void (*step)(void *context, const sn_step_report *report); /* after every logging_steps; may be NULL */
    void *context;
    const volatile sig_atomic_t *stop; /* nonzero: save and return after the step at work; may be NULL */
} sn_train_hooks;

typedef struct sn_train_summary {
    uint64_t planned_bytes, peak_bytes;                    /* the bill; VmHWM */
    double tokens_per_s, first_loss, last_loss, eval_loss; /* NaN: not measured */
    double start_seconds;                                  /* from the call to the beginning of the first step */
    double step_seconds;                                   /* of the steps after the first, their mean; NaN: there were none */
    double estimated_step_seconds;                         /* before the first */
    bool estimate_measured;                                /* by rates that were measured: else they are guesses */
    int64_t steps, skipped, tokens;                        /* updates applied; updates skipped (overflow, NaN guard); real tokens seen */
    bool interrupted;
    int rank; /* among processes; only rank 0 writes and reports */
} sn_train_summary;

/* Fine-tunes or trains `model` on the file `data`; everything is written below out_dir: checkpoints, metrics.jsonl,
 * TensorBoard events, summary.json, and the adapter or the whole model. Fails before any allocation when the plan does
 * not fit the recipe's budget, and before step 0 when the disk has no room for the checkpoints. A model without
 * weights is initialised at random and needs a tokenizer only when the data is not ready-made ids. Launched as one of several
 * processes (run/launch.h) it is collective: each is one rank, and a failure of any ends all. */
sn_status sn_train(sn_model *model, const sn_options *recipe, const char *data, const char *out_dir, const sn_train_hooks *hooks,
                   sn_train_summary *summary);

/* Plans what sn_train would run, without data. world (may be NULL) must outlive the session. */
sn_status sn_train_plan(sn_model *model, const sn_options *recipe, const sn_world *world, const char *stop_after, sn_session *s);

/* The same for a search: most (0: none): bytes of a device arena from which on the plan is of no use and may stay rough (plan/plan.h).
 * rates: what sn_train_rates found for this machine. */
sn_status sn_train_plan_within(sn_model *model, const sn_options *recipe, const sn_world *world, uint64_t most, const sn_rates *rates,
                               sn_session *s);

/* Rates for estimates: the recipe's device_shape, else what `snug probe` measured here; *measured false: neither is known and they are
 * guesses. Fails for want of memory only. */
sn_status sn_train_rates(const sn_session *s, const sn_options *recipe, sn_rates *rates, bool *measured);

/* Estimates a step of a planned job. Fails for want of memory only. */
sn_status sn_train_forecast(const sn_session *s, const sn_options *recipe, const sn_rates *rates, sn_forecast *f);

#endif
