#include <math.h>

#include "ops/attention/attention_reference.h"
#include "ops/ring_attention_grad/ring_attention_grad.h"

typedef struct job {
    const sn_call *c;
    int64_t d, heads, kv_heads, group;
    double *sums; /* one thread's rows of sums, 2 d each */
} job;

static double dot(const sn_tensor *a, int64_t row_a, int64_t col_a, const sn_tensor *x, int64_t row_x, int64_t col_x, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += sn_element(a, row_a, col_a + i) * sn_element(x, row_x, col_x + i);
    return s;
}

/* Whether query t sees key j. */
static bool sees(const sn_call *c, int64_t t, int64_t j) {
    int64_t place = ((const int32_t *)c->in[7].data)[j], last = ((const int32_t *)c->in[6].data)[t];
    int64_t first = ((const int32_t *)c->in[8].data)[t], window = c->attrs.i[SN_RING_ATTENTION_GRAD_WINDOW];
    return place <= last && place >= first && (window == 0 || place > last - window);
}

/* Probability p of key j for query t of head h, and ds = dL/ds of the scaled score. */
static void pair(const job *b, int64_t t, int64_t j, int64_t h, double *p, double *ds) {
    const sn_tensor *in = b->c->in;
    int64_t q_col = h * b->d, k_col = h / b->group * b->d;
    double s = b->c->attrs.f[SN_RING_ATTENTION_GRAD_SCALE] * dot(&in[1], t, q_col, &in[2], j, k_col, b->d);
    double delta = dot(&in[0], t, q_col, &in[4], t, q_col, b->d);
    *p = exp(s - (double)((const float *)in[5].data)[t * b->heads + h]);
    *ds = *p * (dot(&in[0], t, q_col, &in[3], j, k_col, b->d) - delta);
}

static void put(const job *b, int o, int in, int64_t row, int64_t col, const double *sum, double scale) {
    for (int64_t i = 0; i < b->d; i++) {
        double before = sn_has(b->c, in) ? sn_element(&b->c->in[in], row, col + i) : 0;
        sn_set_element(&b->c->out[o], row, col + i, before + sum[i] * scale);
    }
}

static void dq_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t t = task / b->heads, h = task % b->heads, d = b->d;
    double *sum = b->sums + member * 2 * d;
    for (int64_t i = 0; i < d; i++) sum[i] = 0;
    for (int64_t j = 0; j < sn_rows(&b->c->in[2]); j++) {
        double p, ds;
        if (!sees(b->c, t, j)) continue;
        pair(b, t, j, h, &p, &ds);
        for (int64_t i = 0; i < d; i++) sum[i] += ds * sn_element(&b->c->in[2], j, h / b->group * d + i);
    }
    put(b, 0, 9, t, h * d, sum, b->c->attrs.f[SN_RING_ATTENTION_GRAD_SCALE]);
}

static void dkv_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t j = task / b->kv_heads, g = task % b->kv_heads, d = b->d;
    double *dk = b->sums + member * 2 * d, *dv = dk + d;
    for (int64_t i = 0; i < 2 * d; i++) dk[i] = 0;
    for (int64_t t = 0; t < sn_rows(&b->c->in[1]); t++) {
        if (!sees(b->c, t, j)) continue;
        for (int64_t h = g * b->group; h < (g + 1) * b->group; h++) {
            double p, ds;
            pair(b, t, j, h, &p, &ds);
            for (int64_t i = 0; i < d; i++) {
                dk[i] += ds * sn_element(&b->c->in[1], t, h * d + i);
                dv[i] += p * sn_element(&b->c->in[0], t, h * d + i);
            }
        }
    }
    put(b, 1, 10, j, g * d, dk, b->c->attrs.f[SN_RING_ATTENTION_GRAD_SCALE]);
    put(b, 2, 11, j, g * d, dv, 1);
}

static void run(const sn_call *c) {
    int64_t d = c->attrs.i[SN_RING_ATTENTION_GRAD_HEAD_DIM];
    job b = {.c = c, .d = d, .heads = sn_cols(&c->in[1]) / d, .kv_heads = sn_cols(&c->in[2]) / d, .sums = c->scratch};
    b.group = b.heads / b.kv_heads;
    if (c->attrs.i[SN_RING_ATTENTION_GRAD_OF] == SN_RING_OF_QUERIES) sn_team_run(c->team, sn_rows(&c->in[1]) * b.heads, dq_task, &b);
    else sn_team_run(c->team, sn_rows(&c->in[2]) * b.kv_heads, dkv_task, &b);
}

static size_t scratch(const sn_call *c, int n_threads) {
    return (size_t)n_threads * 2 * (size_t)c->attrs.i[SN_RING_ATTENTION_GRAD_HEAD_DIM] * sizeof(double);
}

static bool takes(const sn_call *c) {
    for (int i = 0; i < 5; i++)
        if (!sn_dtype_is_float(c->in[i].dtype)) return false;
    return true;
}

const sn_kernel sn_ring_attention_grad_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .scratch = scratch, .run = run},
    {0},
};
