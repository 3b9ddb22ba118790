/* The loops of rms_norm and rms_norm_grad, compiled for each processor feature. */
#ifndef SN_OPS_RMS_NORM_LOOPS_H
#define SN_OPS_RMS_NORM_LOOPS_H

#include <math.h>

#include "ops/math/norm_rows.h"
#include "ops/rms_norm/rms_norm.h"

static void rms_norm_row(const sn_call *c, int64_t row) {
    const sn_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    const int64_t columns = sn_cols(x);
    float x_buffer[SN_PIECE], w_buffer[SN_PIECE], y_buffer[SN_PIECE], partial[SN_LANES] = {0};
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        SN_SUM(partial, i, n, v[i] * v[i]);
    }
    const float mean = sn_lanes_f32(partial) / sn_columns_f32(columns);
    const float rstd = 1.0f / sqrtf(mean + (float)c->attrs.f[SN_RMS_NORM_EPS]);
    ((float *)c->out[1].data)[row] = rstd;
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        float *to = sn_result_f32(y->dtype, sn_element(y, row * columns + at), y_buffer);
        SN_EACH(i, n, to[i] = (v[i] * rstd) * weight[i];);
        sn_store_f32(y->dtype, to, n, sn_element(y, row * columns + at));
    }
}

static void rms_norm_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int64_t end = sn_min_i64((task + 1) * SN_NORM_ROWS, sn_rows(&c->in[0]));
    for (int64_t row = task * SN_NORM_ROWS; row < end; row++) rms_norm_row(c, row);
}

static void rms_norm_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_rows(&c->in[0]), SN_NORM_ROWS), rms_norm_task, (void *)c); }

/* With h = x rstd and a = mean(dy w h): dx = rstd (dy w - h a), dw = sum over rows of dy h. `dw` may be NULL. */
static void rms_norm_grad_row(const sn_call *c, int64_t row, float *dw) {
    const sn_tensor *dy = &c->in[0], *x = &c->in[1], *w = &c->in[2], *dx = &c->out[0];
    const int64_t columns = sn_cols(x);
    const float rstd = ((const float *)c->in[3].data)[row];
    float d_buffer[SN_PIECE], x_buffer[SN_PIECE], w_buffer[SN_PIECE], y_buffer[SN_PIECE], partial[SN_LANES] = {0};
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *d = sn_load_f32(dy->dtype, sn_element(dy, row * columns + at), n, d_buffer);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        SN_SUM(partial, i, n, (d[i] * weight[i]) * (v[i] * rstd));
        if (dw) SN_EACH(i, n, dw[at + i] += d[i] * (v[i] * rstd););
    }
    const float a = sn_lanes_f32(partial) / sn_columns_f32(columns);
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *d = sn_load_f32(dy->dtype, sn_element(dy, row * columns + at), n, d_buffer);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        float *to = sn_result_f32(dx->dtype, sn_element(dx, row * columns + at), y_buffer);
        SN_EACH(i, n, to[i] = rstd * (d[i] * weight[i] - (v[i] * rstd) * a););
        sn_store_f32(dx->dtype, to, n, sn_element(dx, row * columns + at));
    }
}

static void rms_norm_grad_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int64_t rows = sn_rows(&c->in[1]), columns = sn_cols(&c->in[1]), chunk = sn_chunk_rows(rows);
    float *dw = c->attrs.i[SN_RMS_NORM_GRAD_WANT_DW] ? (float *)c->scratch + task * columns : NULL;
    if (dw) memset(dw, 0, (size_t)columns * sizeof(float));
    for (int64_t row = task * chunk; row < sn_min_i64((task + 1) * chunk, rows); row++) rms_norm_grad_row(c, row, dw);
}

static void rms_norm_grad_run(const sn_call *c) {
    const int64_t chunks = sn_chunks(sn_rows(&c->in[1]));
    sn_team_run(c->team, chunks, rms_norm_grad_task, (void *)c);
    if (c->attrs.i[SN_RMS_NORM_GRAD_WANT_DW]) sn_add_chunks(c->team, c->scratch, chunks, sn_cols(&c->in[1]), c->out[1].data);
}

static size_t rms_norm_grad_scratch(const sn_call *c, int n_threads) {
    (void)n_threads;
    if (!c->attrs.i[SN_RMS_NORM_GRAD_WANT_DW]) return 0;
    return (size_t)sn_chunks(sn_rows(&c->in[1])) * (size_t)sn_cols(&c->in[1]) * sizeof(float);
}

#endif
