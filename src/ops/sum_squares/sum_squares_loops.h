/* The loops of sum_squares, compiled for each processor feature. */
#ifndef SN_OPS_SUM_SQUARES_LOOPS_H
#define SN_OPS_SUM_SQUARES_LOOPS_H

#include "ops/math/rows.h"
#include "ops/sum_squares/sum_squares.h"

enum { SUM_SQUARES_UNITS = 8 }; /* of one task */

static void sum_squares_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *g = &c->in[0];
    const int64_t n = sn_elements(g), units = sn_tasks(n, SN_SUM_SQUARES_UNIT);
    double *unit_sums = c->out[0].data;
    float buffer[SN_PIECE];
    for (int64_t unit = task * SUM_SQUARES_UNITS; unit < sn_min_i64((task + 1) * SUM_SQUARES_UNITS, units); unit++) {
        const int64_t end = sn_min_i64((unit + 1) * SN_SUM_SQUARES_UNIT, n);
        double partial[SN_LANES] = {0};
        for (int64_t at = unit * SN_SUM_SQUARES_UNIT; at < end; at += SN_PIECE) {
            const int64_t count = sn_min_i64(SN_PIECE, end - at);
            const float *x = sn_load_f32(g->dtype, sn_element(g, at), count, buffer);
            SN_SUM(partial, i, count, (double)x[i] * (double)x[i]);
        }
        unit_sums[unit] = sn_lanes_f64(partial);
    }
}

static void sum_squares_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks(sn_elements(&c->out[0]), SUM_SQUARES_UNITS), sum_squares_task, (void *)c);
}

#endif
