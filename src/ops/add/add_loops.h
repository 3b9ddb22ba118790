/* The loops of add, compiled for each processor feature. */
#ifndef SN_OPS_ADD_LOOPS_H
#define SN_OPS_ADD_LOOPS_H

#include "ops/add/add.h"
#include "ops/math/rows.h"

static void add_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    const float alpha = (float)c->attrs.f[SN_ADD_ALPHA];
    float a_buffer[SN_PIECE], b_buffer[SN_PIECE], y_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(a)) {
        const float *x = sn_load_f32(a->dtype, sn_element(a, at), n, a_buffer);
        const float *z = sn_load_f32(b->dtype, sn_element(b, at), n, b_buffer);
        float *out = sn_result_f32(y->dtype, sn_element(y, at), y_buffer);
        SN_EACH(i, n, out[i] = x[i] + alpha * z[i];);
        sn_store_f32(y->dtype, out, n, sn_element(y, at));
    }
}

static void add_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), add_task, (void *)c); }

#endif
