#include <math.h>

#include "ops/attention/attention_reference.h"
#include "ops/attention_grad/attention_grad.h"

typedef struct job {
    const sn_call *c;
    int64_t n, d, heads, kv_heads, group, window;
    double scale;
    double *sums; /* one thread's rows of sums, 2 d each */
} job;

static int64_t first_key(const job *b, int64_t t) {
    int64_t from = ((const int32_t *)b->c->in[6].data)[t];
    if (from < 0 || from > t) from = from < 0 ? 0 : t;
    return b->window > 0 && t - b->window + 1 > from ? t - b->window + 1 : from;
}

static double dot(const sn_tensor *a, int64_t row_a, int64_t col_a, const sn_tensor *x, int64_t row_x, int64_t col_x, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += sn_element(a, row_a, col_a + i) * sn_element(x, row_x, col_x + i);
    return s;
}

/* Probability p of key j for query t of head h, and ds = dL/ds of the scaled score. */
static void pair(const job *b, int64_t t, int64_t j, int64_t h, double *p, double *ds) {
    const sn_tensor *in = b->c->in;
    int64_t q_col = h * b->d, k_col = h / b->group * b->d;
    double s = b->scale * dot(&in[1], t, q_col, &in[2], j, k_col, b->d);
    double delta = dot(&in[0], t, q_col, &in[4], t, q_col, b->d);
    *p = exp(s - (double)((const float *)in[5].data)[t * b->heads + h]);
    *ds = *p * (dot(&in[0], t, q_col, &in[3], j, k_col, b->d) - delta);
}

static void dq_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t t = task / b->heads, h = task % b->heads, d = b->d;
    double *sum = b->sums + member * 2 * d;
    for (int64_t i = 0; i < d; i++) sum[i] = 0;
    for (int64_t j = first_key(b, t); j <= t; j++) {
        double p, ds;
        pair(b, t, j, h, &p, &ds);
        for (int64_t i = 0; i < d; i++) sum[i] += ds * sn_element(&b->c->in[2], j, h / b->group * d + i);
    }
    for (int64_t i = 0; i < d; i++) sn_set_element(&b->c->out[0], t, h * d + i, sum[i] * b->scale);
}

static void dkv_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t j = task / b->kv_heads, g = task % b->kv_heads, d = b->d;
    double *dk = b->sums + member * 2 * d, *dv = dk + d;
    for (int64_t i = 0; i < 2 * d; i++) dk[i] = 0;
    for (int64_t t = j; t < b->n; t++) {
        if (first_key(b, t) > j) break; /* t belongs to the next sequence, or the window has passed */
        for (int64_t h = g * b->group; h < (g + 1) * b->group; h++) {
            double p, ds;
            pair(b, t, j, h, &p, &ds);
            for (int64_t i = 0; i < d; i++) {
                dk[i] += ds * sn_element(&b->c->in[1], t, h * d + i);
                dv[i] += p * sn_element(&b->c->in[0], t, h * d + i);
            }
        }
    }
    for (int64_t i = 0; i < d; i++) {
        sn_set_element(&b->c->out[1], j, g * d + i, dk[i] * b->scale);
        sn_set_element(&b->c->out[2], j, g * d + i, dv[i]);
    }
}

static void run(const sn_call *c) {
    int64_t d = c->attrs.i[SN_ATTENTION_GRAD_HEAD_DIM];
    job b = {
        .c = c, .n = sn_rows(&c->in[1]), .d = d, .heads = sn_cols(&c->in[1]) / d, .kv_heads = sn_cols(&c->in[2]) / d, .sums = c->scratch};
    b.group = b.heads / b.kv_heads;
    b.window = c->attrs.i[SN_ATTENTION_GRAD_WINDOW];
    b.scale = c->attrs.f[SN_ATTENTION_GRAD_SCALE];
    sn_team_run(c->team, b.n * b.heads, dq_task, &b);
    sn_team_run(c->team, b.n * b.kv_heads, dkv_task, &b);
}

static size_t scratch(const sn_call *c, int n_threads) {
    return (size_t)n_threads * 2 * (size_t)c->attrs.i[SN_ATTENTION_GRAD_HEAD_DIM] * sizeof(double);
}

static bool takes(const sn_call *c) {
    for (int i = 0; i < 5; i++)
        if (!sn_dtype_is_float(c->in[i].dtype)) return false;
    return true;
}

const sn_kernel sn_attention_grad_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .scratch = scratch, .run = run},
    {0},
};
