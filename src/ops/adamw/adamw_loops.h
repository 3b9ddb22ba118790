/* The loops of adamw, compiled for each processor feature. */
#ifndef SN_OPS_ADAMW_LOOPS_H
#define SN_OPS_ADAMW_LOOPS_H

#include "ops/adamw/adamw_step.h"
#include "ops/math/update.h"

static void adamw_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *w = &c->in[0], *g = &c->in[1], *m = &c->in[2], *v = &c->in[3], *w16 = &c->in[6];
    const adamw_numbers numbers = adamw_prepare(c->attrs.f, c->in[4].data, c->in[5].data);
    const int64_t parameter = c->attrs.i[SN_ADAMW_PARAMETER], base = c->attrs.i[SN_ADAMW_FIRST];
    const sn_random random[3] = {sn_update_random(c->in[4].data, parameter, 0), sn_update_random(c->in[4].data, parameter, 1),
                                 sn_update_random(c->in[4].data, parameter, 2)};
    float w_buffer[SN_PIECE], g_buffer[SN_PIECE], m_buffer[SN_PIECE], v_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(w)) {
        const float *grad = sn_load_f32(g->dtype, sn_element(g, at), n, g_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        const float *first = sn_load_f32(m->dtype, sn_element(m, at), n, m_buffer);
        const float *second = sn_load_f32(v->dtype, sn_element(v, at), n, v_buffer);
        float *w_new = sn_result_f32(w->dtype, sn_element(w, at), w_buffer);
        float *m_new = sn_result_f32(m->dtype, sn_element(m, at), m_buffer);
        float *v_new = sn_result_f32(v->dtype, sn_element(v, at), v_buffer);
        adamw_piece(&numbers, grad, weight, first, second, n, w_new, m_new, v_new);
        sn_store_updated(w, at, n, w_new, &random[0], base);
        sn_store_updated(m, at, n, m_new, &random[1], base);
        sn_store_updated(v, at, n, v_new, &random[2], base);
        if (sn_has(c, 6)) sn_store_copy(w16, at, n, w_new, c->in[4].data, parameter, base);
    }
}

static void adamw_run(const sn_call *c) {
    if (((const float *)c->in[5].data)[SN_CLIP_APPLIED] == 0) return;
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), adamw_task, (void *)c);
}

#endif
