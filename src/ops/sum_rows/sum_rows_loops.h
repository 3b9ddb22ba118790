/* The loops of sum_rows, compiled for each processor feature. A task is a run of columns, which it sums over all rows. */
#ifndef SN_OPS_SUM_ROWS_LOOPS_H
#define SN_OPS_SUM_ROWS_LOOPS_H

#include "ops/math/rows.h"
#include "ops/sum_rows/sum_rows.h"

enum { SUM_ROWS_COLUMNS = 256 }; /* of one task */

static void sum_rows_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *x = &c->in[0], *y = &c->out[0];
    const int64_t rows = sn_rows(x), columns = sn_cols(x), first = task * SUM_ROWS_COLUMNS;
    const int64_t n = sn_min_i64(SUM_ROWS_COLUMNS, columns - first);
    float sum[SUM_ROWS_COLUMNS] = {0}, buffer[SUM_ROWS_COLUMNS];
    for (int64_t r = 0; r < rows; r++) {
        const float *row = sn_load_f32(x->dtype, sn_element(x, r * columns + first), n, buffer);
        SN_EACH(i, n, sum[i] += row[i];);
    }
    sn_store_f32(y->dtype, sum, n, sn_element(y, first));
}

static void sum_rows_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks(sn_cols(&c->in[0]), SUM_ROWS_COLUMNS), sum_rows_task, (void *)c);
}

#endif
