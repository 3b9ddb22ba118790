/* The loops of gelu and gelu_grad, compiled for each processor feature. */
#ifndef SN_OPS_GELU_LOOPS_H
#define SN_OPS_GELU_LOOPS_H

#include <math.h>

#include "ops/gelu/gelu.h"
#include "ops/math/expf.h"
#include "ops/math/rows.h"

#define GELU_C 0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_A 0.044715f

/* 1/2 (1 + tanh u) is 1 / (1 + e^-2u), so the tanh form is x / (1 + e^-2u) with u = c (x + a x^3). */
static void gelu_tanh(const float *x, int64_t n, float *y) {
    SN_EACH(i, n, float z = x[i]; y[i] = z / (1.0f + sn_expf(-2.0f * GELU_C * (z + GELU_A * z * z * z))););
}

static void gelu_erf(const float *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

/* With s = 1 / (1 + e^-2u): dx = dy (s + x s (1 - s) 2 u'), u' = c (1 + 3 a x^2). */
static void gelu_tanh_grad(const float *dy, const float *x, int64_t n, float *dx) {
    SN_EACH(i, n, float z = x[i]; float s = 1.0f / (1.0f + sn_expf(-2.0f * GELU_C * (z + GELU_A * z * z * z)));
            float slope = 2.0f * GELU_C * (1.0f + 3.0f * GELU_A * z * z); dx[i] = dy[i] * (s + z * slope * (s * (1.0f - s))););
}

/* dx = dy (cdf(x) + x pdf(x)). */
static void gelu_erf_grad(const float *dy, const float *x, int64_t n, float *dx) {
    for (int64_t i = 0; i < n; i++) {
        float z = x[i], cdf = 0.5f * (1.0f + erff(z * 0.70710678f)), pdf = 0.39894228f * sn_expf(-0.5f * z * z);
        dx[i] = dy[i] * (cdf + z * pdf);
    }
}

static void gelu_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *x = &c->in[0], *y = &c->out[0];
    float x_buffer[SN_PIECE], y_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(x)) {
        const float *from = sn_load_f32(x->dtype, sn_element(x, at), n, x_buffer);
        float *to = sn_result_f32(y->dtype, sn_element(y, at), y_buffer);
        if (c->attrs.i[SN_GELU_EXACT]) gelu_erf(from, n, to);
        else gelu_tanh(from, n, to);
        sn_store_f32(y->dtype, to, n, sn_element(y, at));
    }
}

static void gelu_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), gelu_task, (void *)c); }

static void gelu_grad_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *dy = &c->in[0], *x = &c->in[1], *dx = &c->out[0];
    float d_buffer[SN_PIECE], x_buffer[SN_PIECE], y_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(x)) {
        const float *d = sn_load_f32(dy->dtype, sn_element(dy, at), n, d_buffer);
        const float *from = sn_load_f32(x->dtype, sn_element(x, at), n, x_buffer);
        float *to = sn_result_f32(dx->dtype, sn_element(dx, at), y_buffer);
        if (c->attrs.i[SN_GELU_EXACT]) gelu_erf_grad(d, from, n, to);
        else gelu_tanh_grad(d, from, n, to);
        sn_store_f32(dx->dtype, to, n, sn_element(dx, at));
    }
}

static void gelu_grad_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_elements(&c->in[1]), SN_TASK), gelu_grad_task, (void *)c); }

#endif
