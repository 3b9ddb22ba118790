#include <math.h>

#include "ops/linear_cross_entropy/cross_entropy_part.h"
#include "ops/math/rows.h"

enum { PART, LABELS, SCALE };
enum { JOIN_ROWS = 64 }; /* of one task */

static void join_row(const sn_call *c, int64_t t) {
    const int64_t parts = c->in[PART].shape.d[0], tokens = c->in[PART].shape.d[1];
    const double *part = (const double *)c->in[PART].data + t * SN_CROSS_ENTROPY_NORM, scale = (double)*(const float *)c->in[SCALE].data;
    const int32_t label = ((const int32_t *)c->in[LABELS].data)[t];
    double *norm = (double *)c->out[1].data + t * SN_CROSS_ENTROPY_NORM, max = -INFINITY, sum = 0, logit = 0;
    for (int64_t p = 0; p < parts; p++) max = fmax(max, part[p * tokens * SN_CROSS_ENTROPY_NORM]);
    for (int64_t p = 0; p < parts; p++) {
        const double *own = part + p * tokens * SN_CROSS_ENTROPY_NORM;
        sum += own[1] * exp(own[0] - max);
        logit += own[2];
    }
    const bool counts = label >= 0 && label < c->attrs.i[SN_CROSS_ENTROPY_JOIN_VOCAB];
    ((float *)c->out[0].data)[t] = counts ? (float)(max + log(sum) - logit) : 0.0f;
    norm[SN_CROSS_ENTROPY_MAX] = counts ? max : 0;
    norm[SN_CROSS_ENTROPY_FACTOR] = counts ? scale / sum : 0;
    norm[SN_CROSS_ENTROPY_SCALE] = counts ? scale : 0;
}

static void join_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int64_t end = sn_min_i64((task + 1) * JOIN_ROWS, sn_elements(&c->out[0]));
    for (int64_t t = task * JOIN_ROWS; t < end; t++) join_row(c, t);
}

static void join_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_elements(&c->out[0]), JOIN_ROWS), join_task, (void *)c); }

SN_ONE_KERNEL(sn_cross_entropy_join_cpu, "reference", SN_CPU_REFERENCE, NULL, join_run);
