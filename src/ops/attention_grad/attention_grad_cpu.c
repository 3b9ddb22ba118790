#include "ops/attention/attention_core.h"
#include "ops/attention_grad/attention_grad.h"
#include "ops/attention_grad/attention_grad_reference.h"

typedef sn_attention_grad_reference job;

static int64_t first_key(const job *b, int64_t t) {
    int64_t from = ((const int32_t *)b->c->in[6].data)[t];
    if (from < 0 || from > t) from = from < 0 ? 0 : t;
    return b->window > 0 && t - b->window + 1 > from ? t - b->window + 1 : from;
}

static void dq_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t t = task / b->heads, h = task % b->heads;
    double *sum = sn_attention_grad_reference_sums(b, member);
    for (int64_t j = first_key(b, t); j <= t; j++) sn_attention_grad_add_dq(b, t, j, h, sum);
    for (int64_t i = 0; i < b->d; i++) sn_set_element(&b->c->out[0], t, h * b->d + i, sum[i] * b->scale);
}

static void dkv_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t j = task / b->kv_heads, g = task % b->kv_heads, d = b->d;
    double *dk = sn_attention_grad_reference_sums(b, member), *dv = dk + d;
    for (int64_t t = j; t < b->n; t++) {
        if (first_key(b, t) > j) break; /* t belongs to the next sequence, or the window has passed */
        sn_attention_grad_add_dkv(b, t, j, g, dk);
    }
    for (int64_t i = 0; i < d; i++) {
        sn_set_element(&b->c->out[1], j, g * d + i, dk[i] * b->scale);
        sn_set_element(&b->c->out[2], j, g * d + i, dv[i]);
    }
}

static void run(const sn_call *c) {
    job b = sn_attention_grad_reference_of(c);
    sn_team_run(c->team, b.n * b.heads, dq_task, &b);
    sn_team_run(c->team, b.n * b.kv_heads, dkv_task, &b);
}

const sn_kernel sn_attention_grad_cpu[] = {
    {.name = "reference",
     .device = SN_DEVICE_CPU,
     .takes = sn_attention_grad_takes,
     .scratch = sn_attention_grad_reference_scratch,
     .run = run},
    {0},
};
