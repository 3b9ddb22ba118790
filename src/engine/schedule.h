/* Learning-rate schedules, as pure functions of the update step: a resumed run needs nothing but its step.
 *
 * Values are those of transformers' get_scheduler: constant (constant_with_warmup when there is a warm-up), linear,
 * cosine (cosine_with_min_lr when a floor is set), warmup_stable_decay (Hu et al. 2024, "MiniCPM"). Update 0, the first,
 * is done with factor 0 when there is a warm-up, as there. Past `total` the last factor stays. */
#ifndef SN_ENGINE_SCHEDULE_H
#define SN_ENGINE_SCHEDULE_H

#include <stdint.h>

#include "base/status.h"
#include "io/options.h"

typedef enum sn_schedule_kind { SN_SCHEDULE_CONSTANT, SN_SCHEDULE_LINEAR, SN_SCHEDULE_COSINE, SN_SCHEDULE_WSD } sn_schedule_kind;
typedef enum sn_decay_kind { SN_DECAY_LINEAR, SN_DECAY_COSINE, SN_DECAY_ONE_MINUS_SQRT } sn_decay_kind;

typedef struct sn_schedule {
    sn_schedule_kind kind;
    double learning_rate;     /* at factor 1 */
    int64_t total;            /* update steps of the whole job, not of what is left of it */
    int64_t warmup;           /* update steps */
    double min_ratio;         /* floor of COSINE and WSD, a factor */
    int64_t decay;            /* WSD: update steps of the last phase */
    sn_decay_kind decay_kind; /* WSD */
} sn_schedule;

/* Learning rate of update `step`, counted from 0. */
double sn_learning_rate(const sn_schedule *s, int64_t step);

/* Warm-up steps: `steps` if positive, else the ceiling of ratio * total. */
int64_t sn_warmup_steps(int64_t total, int64_t steps, double ratio);

/* learning_rate, lr_scheduler_type, warmup_steps, warmup_ratio, min_lr_ratio, decay_steps, decay_ratio, decay_type. */
extern const sn_option_group sn_schedule_options;

/* The schedule that the options describe for a job of `total` updates. SN_ERR_USAGE when its phases do not fit in it. */
sn_status sn_schedule_from_options(const sn_options *o, int64_t total, sn_schedule *out);

#endif
