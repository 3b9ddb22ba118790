#include "ops/attention/attention_core.h"
#include "ops/attention_grad/attention_grad_reference.h"
#include "ops/ring_attention_grad/ring_attention_grad.h"

typedef sn_attention_grad_reference job;

/* Whether query t sees key j. */
static bool sees(const job *b, int64_t t, int64_t j) {
    int64_t place = ((const int32_t *)b->c->in[7].data)[j], last = ((const int32_t *)b->c->in[6].data)[t];
    int64_t first = ((const int32_t *)b->c->in[8].data)[t];
    return place <= last && place >= first && (b->window == 0 || place > last - b->window);
}

static void put(const job *b, int o, int in, int64_t row, int64_t col, const double *sum, double scale) {
    for (int64_t i = 0; i < b->d; i++) {
        double before = sn_has(b->c, in) ? sn_element(&b->c->in[in], row, col + i) : 0;
        sn_set_element(&b->c->out[o], row, col + i, before + sum[i] * scale);
    }
}

static void dq_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t t = task / b->heads, h = task % b->heads;
    double *sum = sn_attention_grad_reference_sums(b, member);
    for (int64_t j = 0; j < b->n_keys; j++)
        if (sees(b, t, j)) sn_attention_grad_add_dq(b, t, j, h, sum);
    put(b, 0, 9, t, h * b->d, sum, b->scale);
}

static void dkv_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t j = task / b->kv_heads, g = task % b->kv_heads;
    double *dk = sn_attention_grad_reference_sums(b, member);
    for (int64_t t = 0; t < b->n; t++)
        if (sees(b, t, j)) sn_attention_grad_add_dkv(b, t, j, g, dk);
    put(b, 1, 10, j, g * b->d, dk, b->scale);
    put(b, 2, 11, j, g * b->d, dk + b->d, 1);
}

static void run(const sn_call *c) {
    job b = sn_attention_grad_reference_of(c);
    if (c->attrs.i[SN_RING_ATTENTION_GRAD_OF] == SN_RING_OF_QUERIES) sn_team_run(c->team, b.n * b.heads, dq_task, &b);
    else sn_team_run(c->team, b.n_keys * b.kv_heads, dkv_task, &b);
}

const sn_kernel sn_ring_attention_grad_cpu[] = {
    {.name = "reference",
     .device = SN_DEVICE_CPU,
     .takes = sn_attention_grad_takes,
     .scratch = sn_attention_grad_reference_scratch,
     .run = run},
    {0},
};
