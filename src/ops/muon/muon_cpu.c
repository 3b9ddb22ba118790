/* Almost all of the work is sn_gemm's, with each processor family's tiles; the rest is compiled once, without processor flags,
 * because `scratch` is also asked when planning for another machine. */
#include <math.h>

#include "base/mem.h"
#include "ops/gemm/gemm.h"
#include "ops/math/update.h"
#include "ops/muon/muon.h"

static const float newton_schulz[3] = {3.4445f, -4.7750f, 2.0315f};
static const double least_norm = 1e-7;

/* Where things stand in the scratch: x and y [R,C], a and b [side,side], a sum a piece, then sn_gemm's own. */
typedef struct muon_step {
    const sn_call *c;
    const sn_gemm_isa *isa;
    int64_t rows, columns, side, n;
    float *x, *y, *a, *b;
    double *sums;
    void *gemm;
    float factor, momentum, keep, step, norm;
    sn_random random[2];
} muon_step;

/* Sets the extents and, from `base`, the addresses; returns the bytes before sn_gemm's. */
static size_t muon_lay_out(muon_step *s, const sn_call *c, char *base) {
    s->rows = c->in[0].shape.d[0];
    s->columns = c->in[0].shape.d[1];
    s->side = sn_min_i64(s->rows, s->columns);
    s->n = s->rows * s->columns;
    const size_t matrix = sn_round_up((size_t)s->n * sizeof(float), 64);
    const size_t square = sn_round_up((size_t)(s->side * s->side) * sizeof(float), 64);
    const size_t sums = sn_round_up((size_t)sn_tasks(s->n, SN_PIECE) * sizeof(double), 64);
    if (base) {
        s->x = (float *)base;
        s->y = (float *)(base + matrix);
        s->a = (float *)(base + 2 * matrix);
        s->b = (float *)(base + 2 * matrix + square);
        s->sums = (double *)(base + 2 * matrix + 2 * square);
        s->gemm = base + 2 * matrix + 2 * square + sums;
    }
    return 2 * matrix + 2 * square + sums;
}

static sn_gemm muon_product(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    return (sn_gemm){.m = m,
                     .n = n,
                     .k = k,
                     .a = a,
                     .b = b,
                     .c = c,
                     .lda = k,
                     .ldb = n,
                     .ldc = n,
                     .a_form = SN_F32,
                     .b_form = SN_F32,
                     .c_form = SN_F32,
                     .bias_form = SN_F32};
}

/* a = x x^T, or x^T x of a tall x. */
static sn_gemm muon_gram(const muon_step *s) {
    const bool tall = s->rows > s->columns;
    sn_gemm g = muon_product(s->side, s->side, tall ? s->rows : s->columns, s->x, s->x, s->a);
    g.lda = g.ldb = s->columns;
    g.trans_a = tall;
    g.trans_b = !tall;
    return g;
}
static sn_gemm muon_square(const muon_step *s) { return muon_product(s->side, s->side, s->side, s->a, s->a, s->b); }
static sn_gemm muon_apply(const muon_step *s) {
    if (s->rows > s->columns) return muon_product(s->rows, s->columns, s->columns, s->x, s->b, s->y);
    return muon_product(s->rows, s->columns, s->rows, s->b, s->x, s->y);
}

static size_t muon_scratch(const sn_call *c, int n_threads, const sn_gemm_isa *isa) {
    muon_step s = {0};
    const size_t own = muon_lay_out(&s, c, NULL);
    const sn_gemm products[] = {muon_gram(&s), muon_square(&s), muon_apply(&s)};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        const size_t bytes = sn_gemm_scratch(isa, &products[i], n_threads);
        most = bytes > most ? bytes : most;
    }
    return own + most;
}

static void moment_task(void *context, int64_t task, int member) {
    (void)member;
    const muon_step *s = context;
    const sn_tensor *g = &s->c->in[1], *m = &s->c->in[2];
    const float factor = s->factor, momentum = s->momentum, one_momentum = (float)(1.0 - s->c->attrs.f[SN_MUON_MOMENTUM]);
    float g_buffer[SN_PIECE], m_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, s->n) {
        double lane[SN_LANES] = {0};
        const float *grad = sn_load_f32(g->dtype, sn_element(g, at), n, g_buffer);
        const float *old = sn_load_f32(m->dtype, sn_element(m, at), n, m_buffer);
        float *m_new = sn_result_f32(m->dtype, sn_element(m, at), m_buffer), *x = s->x + at;
        SN_EACH(i, n, const float d = grad[i] * factor; const float moved = old[i] + one_momentum * (d - old[i]);
                x[i] = d + momentum * (moved - d); m_new[i] = moved;);
        sn_store_updated(m, at, n, m_new, &s->random[1], 0);
        SN_SUM(lane, i, n, (double)x[i] * (double)x[i]);
        s->sums[at / SN_PIECE] = sn_lanes_f64(lane);
    }
}

static void normalise_task(void *context, int64_t task, int member) {
    (void)member;
    const muon_step *s = context;
    const float norm = s->norm;
    SN_EACH_PIECE(at, n, task, s->n) {
        float *x = s->x + at;
        SN_EACH(i, n, x[i] = x[i] / norm;);
    }
}

static void polynomial_task(void *context, int64_t task, int member) {
    (void)member;
    const muon_step *s = context;
    const float second = newton_schulz[1], third = newton_schulz[2];
    SN_EACH_PIECE(at, n, task, s->side * s->side) {
        const float *a = s->a + at;
        float *b = s->b + at;
        SN_EACH(i, n, b[i] = second * a[i] + third * b[i];);
    }
}

static void combine_task(void *context, int64_t task, int member) {
    (void)member;
    const muon_step *s = context;
    const float first = newton_schulz[0];
    SN_EACH_PIECE(at, n, task, s->n) {
        const float *y = s->y + at;
        float *x = s->x + at;
        SN_EACH(i, n, x[i] = first * x[i] + y[i];);
    }
}

static void weight_task(void *context, int64_t task, int member) {
    (void)member;
    const muon_step *s = context;
    const sn_tensor *w = &s->c->in[0], *w16 = &s->c->in[5];
    const float keep = s->keep, step = s->step;
    float buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, s->n) {
        const float *old = sn_load_f32(w->dtype, sn_element(w, at), n, buffer), *x = s->x + at;
        float *new = sn_result_f32(w->dtype, sn_element(w, at), buffer);
        SN_EACH(i, n, new[i] = old[i] * keep - step *x[i];);
        sn_store_updated(w, at, n, new, &s->random[0], 0);
        if (sn_has(s->c, 5)) sn_store_copy(w16, at, n, new, s->c->in[3].data, s->c->attrs.i[SN_MUON_PARAMETER], 0);
    }
}

static void each_element(muon_step *s, int64_t n, sn_task_fn fn) { sn_team_run(s->c->team, sn_tasks(n, SN_TASK), fn, s); }

static void orthogonalise(muon_step *s) {
    double sum = 0;
    for (int64_t i = 0; i < sn_tasks(s->n, SN_PIECE); i++) sum += s->sums[i];
    s->norm = (float)(sqrt(sum) > least_norm ? sqrt(sum) : least_norm);
    each_element(s, s->n, normalise_task);
    for (int k = 0; k < SN_MUON_STEPS; k++) {
        const sn_gemm gram = muon_gram(s), square = muon_square(s), apply = muon_apply(s);
        sn_gemm_run(s->isa, &gram, s->gemm, s->c->team);
        sn_gemm_run(s->isa, &square, s->gemm, s->c->team);
        each_element(s, s->side * s->side, polynomial_task);
        sn_gemm_run(s->isa, &apply, s->gemm, s->c->team);
        each_element(s, s->n, combine_task);
    }
}

static void muon_run(const sn_call *c, const sn_gemm_isa *isa) {
    const float *hyper = c->in[3].data, *clip = c->in[4].data;
    const double *f = c->attrs.f, lr = (double)hyper[SN_HYPER_LR];
    const int64_t parameter = c->attrs.i[SN_MUON_PARAMETER];
    muon_step s = {.c = c, .isa = isa};
    muon_lay_out(&s, c, c->scratch);
    if (clip[SN_CLIP_APPLIED] == 0 || s.n == 0) return;
    s.factor = clip[SN_CLIP_FACTOR];
    s.momentum = (float)f[SN_MUON_MOMENTUM];
    s.keep = (float)(1.0 - lr * f[SN_MUON_WEIGHT_DECAY]);
    s.step = (float)(lr * f[SN_MUON_SCALE]);
    s.random[0] = sn_update_random(hyper, parameter, 0);
    s.random[1] = sn_update_random(hyper, parameter, 1);
    each_element(&s, s.n, moment_task);
    orthogonalise(&s);
    each_element(&s, s.n, weight_task);
}

#define SN_MUON_KERNEL(which, text, bits)                                                                                   \
    static size_t scratch_##which(const sn_call *c, int n_threads) { return muon_scratch(c, n_threads, &sn_gemm_##which); } \
    static void run_##which(const sn_call *c) { muon_run(c, &sn_gemm_##which); }                                            \
    SN_ONE_KERNEL(sn_muon_##which, text, bits, scratch_##which, run_##which)

SN_MUON_KERNEL(cpu, "reference", SN_CPU_REFERENCE);
SN_MUON_KERNEL(avx2, "avx2", SN_CPU_AVX2);
SN_MUON_KERNEL(avx512, "avx512", SN_CPU_AVX512);
