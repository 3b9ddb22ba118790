/* The loops of scale, compiled for each processor feature. */
#ifndef SN_OPS_SCALE_LOOPS_H
#define SN_OPS_SCALE_LOOPS_H

#include "ops/math/rows.h"
#include "ops/scale/scale.h"

static void scale_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *a = &c->in[0], *y = &c->out[0];
    const float alpha = (float)c->attrs.f[SN_SCALE_ALPHA];
    float a_buffer[SN_PIECE], y_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(a)) {
        const float *x = sn_load_f32(a->dtype, sn_element(a, at), n, a_buffer);
        float *out = sn_result_f32(y->dtype, sn_element(y, at), y_buffer);
        SN_EACH(i, n, out[i] = alpha * x[i];);
        sn_store_f32(y->dtype, out, n, sn_element(y, at));
    }
}

static void scale_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), scale_task, (void *)c); }

#endif
