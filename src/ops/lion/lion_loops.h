/* The loops of lion, compiled for each processor feature. */
#ifndef SN_OPS_LION_LOOPS_H
#define SN_OPS_LION_LOOPS_H

#include "ops/lion/lion.h"
#include "ops/math/update.h"

static void lion_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *w = &c->in[0], *g = &c->in[1], *m = &c->in[2], *w16 = &c->in[5];
    const float *hyper = c->in[3].data, *clip = c->in[4].data;
    const double *f = c->attrs.f;
    const float lr = hyper[SN_HYPER_LR], factor = clip[SN_CLIP_FACTOR];
    const float keep = (float)(1.0 - (double)lr * f[SN_LION_WEIGHT_DECAY]);
    const float beta1 = (float)f[SN_LION_BETA1], one_beta1 = (float)(1.0 - f[SN_LION_BETA1]);
    const float beta2 = (float)f[SN_LION_BETA2], one_beta2 = (float)(1.0 - f[SN_LION_BETA2]);
    const int64_t parameter = c->attrs.i[SN_LION_PARAMETER], base = c->attrs.i[SN_LION_FIRST];
    const sn_random random[2] = {sn_update_random(hyper, parameter, 0), sn_update_random(hyper, parameter, 1)};
    float w_buffer[SN_PIECE], g_buffer[SN_PIECE], m_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(w)) {
        const float *grad = sn_load_f32(g->dtype, sn_element(g, at), n, g_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        const float *old = sn_load_f32(m->dtype, sn_element(m, at), n, m_buffer);
        float *w_new = sn_result_f32(w->dtype, sn_element(w, at), w_buffer);
        float *m_new = sn_result_f32(m->dtype, sn_element(m, at), m_buffer);
        SN_EACH(i, n, float d = grad[i] * factor; float u = old[i] * beta1 + d * one_beta1;
                float sign = (u > 0 ? 1.0f : 0.0f) - (u < 0 ? 1.0f : 0.0f); float moved = old[i] * beta2 + d * one_beta2;
                float result = weight[i] * keep - lr * sign; m_new[i] = moved; w_new[i] = result;);
        sn_store_updated(w, at, n, w_new, &random[0], base);
        sn_store_updated(m, at, n, m_new, &random[1], base);
        if (sn_has(c, 5)) sn_store_copy(w16, at, n, w_new, hyper, parameter, base);
    }
}

static void lion_run(const sn_call *c) {
    if (((const float *)c->in[4].data)[SN_CLIP_APPLIED] == 0) return;
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), lion_task, (void *)c);
}

#endif
