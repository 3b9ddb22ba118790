/* The loops of adafactor, compiled for each processor feature. A matrix: row means, column means, the update's root mean square,
 * the update; anything else: second moments with the root mean square, the update. */
#ifndef SN_OPS_ADAFACTOR_LOOPS_H
#define SN_OPS_ADAFACTOR_LOOPS_H

#include <math.h>

#include "ops/adafactor/adafactor.h"
#include "ops/math/update.h"

enum { ADAFACTOR_ROWS = 16 /* of a task */, ADAFACTOR_COLUMNS = 256 /* of a task; at most SN_PIECE */ };

typedef struct adafactor_step {
    const sn_call *c;
    int64_t rows, columns;                    /* of a matrix; else 1 and all elements */
    float factor, keep, one_keep, lr, shrink; /* keep: decay of the second moments; shrink: of the weight */
    float divisor, row_mean;
    double *sums;
    float *column_factor;
    sn_random random;
} adafactor_step;

static const float adafactor_eps = 1e-30f;

/* Elements [at, at + n) of the gradient, n <= SN_PIECE, clipped, in `out`. */
static void adafactor_gradient(const adafactor_step *s, int64_t at, int64_t n, float *out) {
    const sn_tensor *g = &s->c->in[1];
    const float *from = sn_load_f32(g->dtype, sn_element(g, at), n, out), factor = s->factor;
    SN_EACH(i, n, out[i] = from[i] * factor;);
}

/* Weights [at, at + n) less the updates u, which are yet to be divided and multiplied by the learning rate. */
static void adafactor_apply(const adafactor_step *s, int64_t at, int64_t n, const float *u) {
    const sn_tensor *w = &s->c->in[0], *w16 = &s->c->in[6];
    float buffer[SN_PIECE];
    const float *old = sn_load_f32(w->dtype, sn_element(w, at), n, buffer), divisor = s->divisor, lr = s->lr, shrink = s->shrink;
    float *new = sn_result_f32(w->dtype, sn_element(w, at), buffer);
    SN_EACH(i, n, new[i] = (old[i] - shrink * old[i]) - u[i] / divisor *lr;);
    sn_store_updated(w, at, n, new, &s->random, 0);
    if (sn_has(s->c, 6)) sn_store_copy(w16, at, n, new, s->c->in[4].data, s->c->attrs.i[SN_ADAFACTOR_PARAMETER], 0);
}

static double adafactor_squares(const float *x, int64_t n) {
    double lane[SN_LANES] = {0};
    SN_SUM(lane, i, n, (double)x[i] * (double)x[i]);
    return sn_lanes_f64(lane);
}

/* What a row's updates are: the gradient over the roots of the row's and the columns' second moments. */
static void adafactor_row_update(const adafactor_step *s, int64_t row, int64_t at, int64_t n, float *u) {
    const float r = 1.0f / sqrtf(((const float *)s->c->in[2].data)[row] / s->row_mean), *column = s->column_factor + at;
    adafactor_gradient(s, row * s->columns + at, n, u);
    SN_EACH(i, n, u[i] = (r * column[i]) * u[i];);
}

/* One piece after the other of the rows of a task. */
#define SN_EACH_ROW_PIECE(s, task, row, at, n)                                                                   \
    for (int64_t row = (task)*ADAFACTOR_ROWS; row < sn_min_i64(((task) + 1) * ADAFACTOR_ROWS, (s)->rows); row++) \
        for (int64_t at = 0, n = sn_min_i64(SN_PIECE, (s)->columns); at < (s)->columns;                          \
             at += n, n = sn_min_i64(SN_PIECE, (s)->columns - at))

static void adafactor_rows_task(void *context, int64_t task, int member) {
    (void)member;
    const adafactor_step *s = context;
    float g[SN_PIECE], *state = s->c->in[2].data;
    double sum = 0;
    SN_EACH_ROW_PIECE(s, task, row, at, n) {
        adafactor_gradient(s, row * s->columns + at, n, g);
        sum = (at ? sum : 0) + adafactor_squares(g, n);
        if (at + n < s->columns) continue;
        const float mean = (float)(sum / (double)s->columns) + adafactor_eps;
        state[row] = state[row] * s->keep + mean * s->one_keep;
    }
}

static void adafactor_columns_task(void *context, int64_t task, int member) {
    (void)member;
    const adafactor_step *s = context;
    const int64_t at = task * ADAFACTOR_COLUMNS, n = sn_min_i64(ADAFACTOR_COLUMNS, s->columns - at);
    const double rows = (double)s->rows;
    float g[SN_PIECE], *state = (float *)s->c->in[3].data + at, *factor = s->column_factor + at;
    double sum[ADAFACTOR_COLUMNS] = {0};
    for (int64_t row = 0; row < s->rows; row++) {
        adafactor_gradient(s, row * s->columns + at, n, g);
        SN_EACH(i, n, sum[i] += (double)g[i] * (double)g[i];);
    }
    const float keep = s->keep, one_keep = s->one_keep;
    SN_EACH(i, n, const float mean = (float)(sum[i] / rows) + adafactor_eps; state[i] = state[i] * keep + mean * one_keep;
            factor[i] = 1.0f / sqrtf(state[i]););
}

static void adafactor_size_task(void *context, int64_t task, int member) {
    (void)member;
    const adafactor_step *s = context;
    float u[SN_PIECE];
    SN_EACH_ROW_PIECE(s, task, row, at, n) {
        adafactor_row_update(s, row, at, n, u);
        s->sums[row] = (at ? s->sums[row] : 0) + adafactor_squares(u, n);
    }
}

static void adafactor_matrix_task(void *context, int64_t task, int member) {
    (void)member;
    const adafactor_step *s = context;
    float u[SN_PIECE];
    SN_EACH_ROW_PIECE(s, task, row, at, n) {
        adafactor_row_update(s, row, at, n, u);
        adafactor_apply(s, row * s->columns + at, n, u);
    }
}

static void adafactor_vector_update(const adafactor_step *s, int64_t at, int64_t n, float *u) {
    const float *v = (const float *)s->c->in[2].data + at;
    adafactor_gradient(s, at, n, u);
    SN_EACH(i, n, u[i] = (1.0f / sqrtf(v[i])) * u[i];);
}

static void adafactor_moments_task(void *context, int64_t task, int member) {
    (void)member;
    const adafactor_step *s = context;
    float u[SN_PIECE];
    SN_EACH_PIECE(at, n, task, s->columns) {
        float *v = (float *)s->c->in[2].data + at;
        const float keep = s->keep, one_keep = s->one_keep;
        adafactor_gradient(s, at, n, u);
        SN_EACH(i, n, v[i] = v[i] * keep + (u[i] * u[i] + adafactor_eps) * one_keep;);
        adafactor_vector_update(s, at, n, u);
        s->sums[at / SN_PIECE] = adafactor_squares(u, n);
    }
}

static void adafactor_vector_task(void *context, int64_t task, int member) {
    (void)member;
    const adafactor_step *s = context;
    float u[SN_PIECE];
    SN_EACH_PIECE(at, n, task, s->columns) {
        adafactor_vector_update(s, at, n, u);
        adafactor_apply(s, at, n, u);
    }
}

/* max(1, root mean square of the update). */
static float adafactor_divisor(const adafactor_step *s, int64_t n_sums) {
    double sum = 0;
    for (int64_t i = 0; i < n_sums; i++) sum += s->sums[i];
    const float size = (float)sqrt(sum / ((double)s->rows * (double)s->columns));
    return size > 1 ? size : 1;
}

static float adafactor_row_mean(const adafactor_step *s) {
    const float *row = s->c->in[2].data;
    double sum = 0;
    for (int64_t i = 0; i < s->rows; i++) sum += (double)row[i];
    return (float)(sum / (double)s->rows);
}

static void adafactor_run(const sn_call *c) {
    const sn_tensor *w = &c->in[0];
    const float *hyper = c->in[4].data, *clip = c->in[5].data;
    const int64_t n = sn_elements(w);
    if (clip[SN_CLIP_APPLIED] == 0 || n == 0) return;
    const bool matrix = w->shape.rank == 2;
    const double keep = 1.0 - pow((double)hyper[SN_HYPER_STEP], -0.8), lr = (double)hyper[SN_HYPER_LR];
    adafactor_step s = {.c = c, .rows = matrix ? w->shape.d[0] : 1, .columns = matrix ? w->shape.d[1] : n, .factor = clip[SN_CLIP_FACTOR]};
    s.keep = (float)keep;
    s.one_keep = (float)(1.0 - keep);
    s.lr = (float)lr;
    s.shrink = (float)(c->attrs.f[SN_ADAFACTOR_WEIGHT_DECAY] * lr);
    s.sums = c->scratch;
    s.column_factor = (float *)(s.sums + s.rows);
    s.random = sn_update_random(hyper, c->attrs.i[SN_ADAFACTOR_PARAMETER], 0);
    if (!matrix) {
        sn_team_run(c->team, sn_tasks(n, SN_TASK), adafactor_moments_task, &s);
        s.divisor = adafactor_divisor(&s, sn_tasks(n, SN_PIECE));
        sn_team_run(c->team, sn_tasks(n, SN_TASK), adafactor_vector_task, &s);
        return;
    }
    const int64_t tasks = sn_tasks(s.rows, ADAFACTOR_ROWS);
    sn_team_run(c->team, tasks, adafactor_rows_task, &s);
    s.row_mean = adafactor_row_mean(&s);
    sn_team_run(c->team, sn_tasks(s.columns, ADAFACTOR_COLUMNS), adafactor_columns_task, &s);
    sn_team_run(c->team, tasks, adafactor_size_task, &s);
    s.divisor = adafactor_divisor(&s, s.rows);
    sn_team_run(c->team, tasks, adafactor_matrix_task, &s);
}

#endif
