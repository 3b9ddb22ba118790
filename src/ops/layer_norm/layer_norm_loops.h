/* The loops of layer_norm and layer_norm_grad, compiled for each processor feature. */
#ifndef SN_OPS_LAYER_NORM_LOOPS_H
#define SN_OPS_LAYER_NORM_LOOPS_H

#include <math.h>

#include "ops/layer_norm/layer_norm.h"
#include "ops/math/norm_rows.h"

/* Sum over a row of x (power 1) or of (x - mean)^2 (power 2). */
static float layer_norm_sum(const sn_tensor *x, int64_t row, int power, float mean) {
    const int64_t columns = sn_cols(x);
    float buffer[SN_PIECE], partial[SN_LANES] = {0};
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, buffer);
        if (power == 1) SN_SUM(partial, i, n, v[i]);
        else SN_SUM(partial, i, n, (v[i] - mean) * (v[i] - mean));
    }
    return sn_lanes_f32(partial);
}

static void layer_norm_row(const sn_call *c, int64_t row) {
    const sn_tensor *x = &c->in[0], *w = &c->in[1], *b = &c->in[2], *y = &c->out[0];
    const int64_t columns = sn_cols(x);
    const bool has_b = sn_has(c, 2);
    const float mean = layer_norm_sum(x, row, 1, 0) / sn_columns_f32(columns);
    const float variance = layer_norm_sum(x, row, 2, mean) / sn_columns_f32(columns);
    const float rstd = 1.0f / sqrtf(variance + (float)c->attrs.f[SN_LAYER_NORM_EPS]);
    ((float *)c->out[1].data)[row] = mean;
    ((float *)c->out[2].data)[row] = rstd;
    float x_buffer[SN_PIECE], w_buffer[SN_PIECE], b_buffer[SN_PIECE], y_buffer[SN_PIECE];
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        float *to = sn_result_f32(y->dtype, sn_element(y, row * columns + at), y_buffer);
        if (has_b) {
            const float *bias = sn_load_f32(b->dtype, sn_element(b, at), n, b_buffer);
            SN_EACH(i, n, to[i] = ((v[i] - mean) * rstd) * weight[i] + bias[i];);
        } else {
            SN_EACH(i, n, to[i] = ((v[i] - mean) * rstd) * weight[i];);
        }
        sn_store_f32(y->dtype, to, n, sn_element(y, row * columns + at));
    }
}

static void layer_norm_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int64_t end = sn_min_i64((task + 1) * SN_NORM_ROWS, sn_rows(&c->in[0]));
    for (int64_t row = task * SN_NORM_ROWS; row < end; row++) layer_norm_row(c, row);
}

static void layer_norm_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks(sn_rows(&c->in[0]), SN_NORM_ROWS), layer_norm_task, (void *)c);
}

/* With h = (x - mean) rstd, a = mean(dy w), e = mean(dy w h): dx = rstd (dy w - a - h e), dw = sum over rows of dy h,
 * db = sum over rows of dy. `dw` and `db` may be NULL. */
static void layer_norm_grad_row(const sn_call *c, int64_t row, float *dw, float *db) {
    const sn_tensor *dy = &c->in[0], *x = &c->in[1], *w = &c->in[2], *dx = &c->out[0];
    const int64_t columns = sn_cols(x);
    const float mean = ((const float *)c->in[3].data)[row], rstd = ((const float *)c->in[4].data)[row];
    float d_buffer[SN_PIECE], x_buffer[SN_PIECE], w_buffer[SN_PIECE], y_buffer[SN_PIECE];
    float partial_a[SN_LANES] = {0}, partial_e[SN_LANES] = {0};
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *d = sn_load_f32(dy->dtype, sn_element(dy, row * columns + at), n, d_buffer);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        SN_SUM(partial_a, i, n, d[i] * weight[i]);
        SN_SUM(partial_e, i, n, (d[i] * weight[i]) * ((v[i] - mean) * rstd));
        if (dw) SN_EACH(i, n, dw[at + i] += d[i] * ((v[i] - mean) * rstd););
        if (db) SN_EACH(i, n, db[at + i] += d[i];);
    }
    const float a = sn_lanes_f32(partial_a) / sn_columns_f32(columns), e = sn_lanes_f32(partial_e) / sn_columns_f32(columns);
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *d = sn_load_f32(dy->dtype, sn_element(dy, row * columns + at), n, d_buffer);
        const float *v = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        float *to = sn_result_f32(dx->dtype, sn_element(dx, row * columns + at), y_buffer);
        SN_EACH(i, n, to[i] = rstd * (d[i] * weight[i] - a - ((v[i] - mean) * rstd) * e););
        sn_store_f32(dx->dtype, to, n, sn_element(dx, row * columns + at));
    }
}

static void layer_norm_grad_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int64_t rows = sn_rows(&c->in[1]), columns = sn_cols(&c->in[1]), chunk = sn_chunk_rows(rows);
    float *next = (float *)c->scratch, *dw = NULL, *db = NULL;
    if (c->attrs.i[SN_LAYER_NORM_GRAD_WANT_DW]) {
        dw = next + task * columns;
        next += sn_chunks(rows) * columns;
        memset(dw, 0, (size_t)columns * sizeof(float));
    }
    if (c->attrs.i[SN_LAYER_NORM_GRAD_WANT_DB]) {
        db = next + task * columns;
        memset(db, 0, (size_t)columns * sizeof(float));
    }
    for (int64_t row = task * chunk; row < sn_min_i64((task + 1) * chunk, rows); row++) layer_norm_grad_row(c, row, dw, db);
}

static void layer_norm_grad_run(const sn_call *c) {
    const int64_t columns = sn_cols(&c->in[1]), chunks = sn_chunks(sn_rows(&c->in[1]));
    sn_team_run(c->team, chunks, layer_norm_grad_task, (void *)c);
    const float *next = c->scratch;
    if (c->attrs.i[SN_LAYER_NORM_GRAD_WANT_DW]) {
        sn_add_chunks(c->team, next, chunks, columns, c->out[1].data);
        next += chunks * columns;
    }
    if (c->attrs.i[SN_LAYER_NORM_GRAD_WANT_DB]) sn_add_chunks(c->team, next, chunks, columns, c->out[2].data);
}

static size_t layer_norm_grad_scratch(const sn_call *c, int n_threads) {
    (void)n_threads;
    const int wanted = !!c->attrs.i[SN_LAYER_NORM_GRAD_WANT_DW] + !!c->attrs.i[SN_LAYER_NORM_GRAD_WANT_DB];
    return (size_t)wanted * (size_t)sn_chunks(sn_rows(&c->in[1])) * (size_t)sn_cols(&c->in[1]) * sizeof(float);
}

#endif
