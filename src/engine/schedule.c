#include "engine/schedule.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static double fraction(int64_t done, int64_t of) { return (double)done / (double)(of > 1 ? of : 1); }

static double decayed(sn_decay_kind kind, double progress) {
    switch (kind) {
    case SN_DECAY_LINEAR: return 1 - progress;
    case SN_DECAY_COSINE: return 0.5 * (1 + cos(pi * progress));
    case SN_DECAY_ONE_MINUS_SQRT: return 1 - sqrt(progress);
    }
    return 0;
}

static double above_floor(double factor, double floor) { return factor * (1 - floor) + floor; }

static double factor_of(const sn_schedule *s, int64_t step) {
    if (step < 0) step = 0;
    if (step < s->warmup) {
        double f = fraction(step, s->warmup);
        return s->kind == SN_SCHEDULE_WSD ? above_floor(f, s->min_ratio) : f;
    }
    if (step > s->total) step = s->total;
    double progress = fraction(step - s->warmup, s->total - s->warmup);
    switch (s->kind) {
    case SN_SCHEDULE_CONSTANT: return 1;
    case SN_SCHEDULE_LINEAR: return fmax(0, fraction(s->total - step, s->total - s->warmup));
    case SN_SCHEDULE_COSINE: return above_floor(decayed(SN_DECAY_COSINE, progress), s->min_ratio);
    case SN_SCHEDULE_WSD:
        if (step < s->total - s->decay) return 1;
        if (step >= s->total) return s->min_ratio;
        return above_floor(decayed(s->decay_kind, fraction(step - (s->total - s->decay), s->decay)), s->min_ratio);
    }
    return 0;
}

double sn_learning_rate(const sn_schedule *s, int64_t step) { return s->learning_rate * factor_of(s, step); }

int64_t sn_warmup_steps(int64_t total, int64_t steps, double ratio) { return steps > 0 ? steps : (int64_t)ceil((double)total * ratio); }

static const sn_option options[] = {
    {.key = "learning_rate",
     .aliases = "lr",
     .deepspeed = "optimizer.params.lr,scheduler.params.warmup_max_lr",
     .default_text = "5e-5",
     .kind = SN_OPTION_FLOAT,
     .has_least = true,
     .help = "highest learning rate, reached after the warm-up"},
    {.key = "lr_scheduler_type",
     .deepspeed = "scheduler.type:WarmupDecayLR=linear,scheduler.type:WarmupLR=constant_with_warmup",
     .default_text = "linear",
     .kind = SN_OPTION_CHOICE,
     .metavar = "NAME",
     .choices = "constant,constant_with_warmup,linear,cosine,cosine_with_min_lr,warmup_stable_decay,wsd",
     .help = "how the learning rate goes on from there"},
    {.key = "warmup_steps",
     .deepspeed = "scheduler.params.warmup_num_steps",
     .default_text = "0",
     .kind = SN_OPTION_INT,
     .has_least = true,
     .help = "updates over which the learning rate rises from 0"},
    {.key = "warmup_ratio",
     .default_text = "0",
     .kind = SN_OPTION_FLOAT,
     .has_least = true,
     .has_most = true,
     .most = 1,
     .help = "the same as a part of all updates, where --warmup-steps is 0"},
    {.key = "min_lr_ratio",
     .default_text = "0",
     .kind = SN_OPTION_FLOAT,
     .has_least = true,
     .has_most = true,
     .most = 1,
     .help = "where cosine and warmup_stable_decay end, as a part of --learning-rate"},
    {.key = "decay_steps",
     .default_text = "0",
     .kind = SN_OPTION_INT,
     .has_least = true,
     .help = "updates of the last phase of warmup_stable_decay"},
    {.key = "decay_ratio",
     .default_text = "0.1",
     .kind = SN_OPTION_FLOAT,
     .has_least = true,
     .has_most = true,
     .most = 1,
     .help = "the same as a part of all updates, where --decay-steps is 0"},
    {.key = "decay_type",
     .default_text = "cosine",
     .kind = SN_OPTION_CHOICE,
     .choices = "linear,cosine,1-sqrt",
     .help = "the curve of that phase"},
};
const sn_option_group sn_schedule_options = SN_OPTION_GROUP("Learning rate", options);

sn_status sn_schedule_from_options(const sn_options *o, int64_t total, sn_schedule *out) {
    const char *kind = sn_options_string(o, "lr_scheduler_type"), *decay = sn_options_string(o, "decay_type");
    sn_schedule s = {.kind = !strncmp(kind, "constant", 8) ? SN_SCHEDULE_CONSTANT
                             : !strcmp(kind, "linear")     ? SN_SCHEDULE_LINEAR
                             : !strncmp(kind, "cosine", 6) ? SN_SCHEDULE_COSINE
                                                           : SN_SCHEDULE_WSD,
                     .learning_rate = sn_options_float(o, "learning_rate"),
                     .total = total,
                     .warmup = sn_warmup_steps(total, sn_options_int(o, "warmup_steps"), sn_options_float(o, "warmup_ratio")),
                     .min_ratio = sn_options_float(o, "min_lr_ratio"),
                     .decay_kind = !strcmp(decay, "linear")   ? SN_DECAY_LINEAR
                                   : !strcmp(decay, "cosine") ? SN_DECAY_COSINE
                                                              : SN_DECAY_ONE_MINUS_SQRT};
    if (s.kind == SN_SCHEDULE_WSD) s.decay = sn_warmup_steps(total, sn_options_int(o, "decay_steps"), sn_options_float(o, "decay_ratio"));
    if (s.warmup > total || s.decay > total - s.warmup)
        return sn_fail(SN_ERR_USAGE, "warmup_steps %lld and decay_steps %lld do not fit in %lld updates", (long long)s.warmup,
                       (long long)s.decay, (long long)total);
    *out = s;
    return SN_OK;
}
