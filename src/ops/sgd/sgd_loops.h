/* The loops of sgd, compiled for each processor feature. */
#ifndef SN_OPS_SGD_LOOPS_H
#define SN_OPS_SGD_LOOPS_H

#include "ops/math/update.h"
#include "ops/sgd/sgd.h"

static void sgd_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *w = &c->in[0], *g = &c->in[1], *m = &c->in[2], *w16 = &c->in[5];
    const float *hyper = c->in[3].data, *clip = c->in[4].data;
    const float lr = hyper[SN_HYPER_LR], factor = clip[SN_CLIP_FACTOR];
    const float decay = (float)c->attrs.f[SN_SGD_WEIGHT_DECAY], momentum = (float)c->attrs.f[SN_SGD_MOMENTUM];
    const int64_t parameter = c->attrs.i[SN_SGD_PARAMETER], base = c->attrs.i[SN_SGD_FIRST];
    const sn_random random[2] = {sn_update_random(hyper, parameter, 0), sn_update_random(hyper, parameter, 1)};
    float w_buffer[SN_PIECE], g_buffer[SN_PIECE], m_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(w)) {
        const float *grad = sn_load_f32(g->dtype, sn_element(g, at), n, g_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        float *w_new = sn_result_f32(w->dtype, sn_element(w, at), w_buffer);
        if (sn_has(c, 2)) {
            const float *old = sn_load_f32(m->dtype, sn_element(m, at), n, m_buffer);
            float *m_new = sn_result_f32(m->dtype, sn_element(m, at), m_buffer);
            SN_EACH(i, n, float moved = old[i] * momentum + (grad[i] * factor + decay * weight[i]); float result = weight[i] - lr * moved;
                    m_new[i] = moved; w_new[i] = result;);
            sn_store_updated(m, at, n, m_new, &random[1], base);
        } else {
            SN_EACH(i, n, w_new[i] = weight[i] - lr * (grad[i] * factor + decay * weight[i]););
        }
        sn_store_updated(w, at, n, w_new, &random[0], base);
        if (sn_has(c, 5)) sn_store_copy(w16, at, n, w_new, hyper, parameter, base);
    }
}

static void sgd_run(const sn_call *c) {
    if (((const float *)c->in[4].data)[SN_CLIP_APPLIED] == 0) return;
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), sgd_task, (void *)c);
}

#endif
