/* The loops of accumulate, compiled for each processor feature. */
#ifndef SN_OPS_ACCUMULATE_LOOPS_H
#define SN_OPS_ACCUMULATE_LOOPS_H

#include "ops/accumulate/accumulate.h"
#include "ops/math/rows.h"

static void accumulate_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *acc = &c->in[0], *x = &c->in[1];
    float a_buffer[SN_PIECE], x_buffer[SN_PIECE], y_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(acc)) {
        const float *a = sn_load_f32(acc->dtype, sn_element(acc, at), n, a_buffer);
        const float *b = sn_load_f32(x->dtype, sn_element(x, at), n, x_buffer);
        float *out = sn_result_f32(acc->dtype, sn_element(acc, at), y_buffer);
        SN_EACH(i, n, out[i] = a[i] + b[i];);
        sn_store_f32(acc->dtype, out, n, sn_element(acc, at));
    }
}

static void accumulate_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), accumulate_task, (void *)c);
}

#endif
