/* The loops of swiglu and swiglu_grad, compiled for each processor feature. */
#ifndef SN_OPS_SWIGLU_LOOPS_H
#define SN_OPS_SWIGLU_LOOPS_H

#include "ops/math/expf.h"
#include "ops/math/rows.h"
#include "ops/swiglu/swiglu.h"

static void swiglu_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *gate = &c->in[0], *up = &c->in[1], *y = &c->out[0];
    float g_buffer[SN_PIECE], u_buffer[SN_PIECE], y_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(gate)) {
        const float *g = sn_load_f32(gate->dtype, sn_element(gate, at), n, g_buffer);
        const float *u = sn_load_f32(up->dtype, sn_element(up, at), n, u_buffer);
        float *out = sn_result_f32(y->dtype, sn_element(y, at), y_buffer);
        SN_EACH(i, n, out[i] = g[i] / (1.0f + sn_expf(-g[i])) * u[i];);
        sn_store_f32(y->dtype, out, n, sn_element(y, at));
    }
}

static void swiglu_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), swiglu_task, (void *)c); }

/* With s = 1 / (1 + e^-gate): dgate = dy up s (1 + gate (1 - s)), dup = dy gate s. */
static void swiglu_grad_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *dy = &c->in[0], *gate = &c->in[1], *up = &c->in[2], *dgate = &c->out[0], *dup = &c->out[1];
    float d_buffer[SN_PIECE], g_buffer[SN_PIECE], u_buffer[SN_PIECE], dg_buffer[SN_PIECE], du_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(gate)) {
        const float *d = sn_load_f32(dy->dtype, sn_element(dy, at), n, d_buffer);
        const float *g = sn_load_f32(gate->dtype, sn_element(gate, at), n, g_buffer);
        const float *u = sn_load_f32(up->dtype, sn_element(up, at), n, u_buffer);
        float *dg = sn_result_f32(dgate->dtype, sn_element(dgate, at), dg_buffer);
        float *du = sn_result_f32(dup->dtype, sn_element(dup, at), du_buffer);
        SN_EACH(i, n, float x = g[i]; float s = 1.0f / (1.0f + sn_expf(-x)); float ds = d[i] * s;
                float to_gate = ds * u[i] * (1.0f + x * (1.0f - s)); float to_up = ds * x; dg[i] = to_gate; du[i] = to_up;);
        sn_store_f32(dgate->dtype, dg, n, sn_element(dgate, at));
        sn_store_f32(dup->dtype, du, n, sn_element(dup, at));
    }
}

static void swiglu_grad_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), swiglu_grad_task, (void *)c);
}

#endif
