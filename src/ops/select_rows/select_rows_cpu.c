#include "ops/select_rows/select_rows.h"

#include "ops/math/rows.h"

enum { SELECT_ROWS = 16 }; /* of one task */

static void select_rows_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *x = &c->in[0], *y = &c->out[0];
    const int32_t *rows = c->in[1].data;
    const size_t bytes = sn_row_bytes(x);
    const int64_t end = sn_min_i64((task + 1) * SELECT_ROWS, sn_elements(&c->in[1]));
    for (int64_t r = task * SELECT_ROWS; r < end; r++) {
        char *to = (char *)y->data + (size_t)r * bytes;
        if (rows[r] >= 0 && rows[r] < sn_rows(x)) memcpy(to, (const char *)x->data + (size_t)rows[r] * bytes, bytes);
        else memset(to, 0, bytes);
    }
}

static void select_rows_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[1]), SELECT_ROWS), select_rows_task, (void *)c);
}

SN_ONE_KERNEL(sn_select_rows_cpu, "reference", SN_CPU_REFERENCE, NULL, select_rows_run);
