#include "ops/attention/attention_core.h"
#include "ops/attention/attention_reference.h"
#include "ops/ring_attention/ring_attention.h"

/* One row after another, key by key as they come, with an online softmax in f64. */
static void row_task(void *context, int64_t task, int member) {
    const sn_call *c = context;
    int64_t d = c->attrs.i[SN_RING_ATTENTION_HEAD_DIM], window = c->attrs.i[SN_RING_ATTENTION_WINDOW];
    int64_t heads = sn_cols(&c->in[0]) / d, group = heads / (sn_cols(&c->in[1]) / d);
    int64_t t = task / heads, h = task % heads, g = h / group;
    int64_t last = ((const int32_t *)c->in[3].data)[t], first = ((const int32_t *)c->in[5].data)[t];
    if (window > 0 && last - window + 1 > first) first = last - window + 1;
    sn_softmax_state x = {.m = -INFINITY, .o = (double *)c->scratch + member * d};
    bool begun = sn_has(c, 6) && ((const float *)c->in[7].data)[task] > -INFINITY;
    if (begun) {
        x.m = (double)((const float *)c->in[7].data)[task];
        x.l = 1;
    }
    for (int64_t i = 0; i < d; i++) x.o[i] = begun ? (double)((const float *)c->in[6].data)[task * d + i] : 0;
    for (int64_t j = 0; j < sn_rows(&c->in[1]); j++) {
        int64_t place = ((const int32_t *)c->in[4].data)[j];
        if (place >= first && place <= last) sn_softmax_meet(c, d, c->attrs.f[SN_RING_ATTENTION_SCALE], t, h * d, j, g * d, &x);
    }
    for (int64_t i = 0; i < d; i++) ((float *)c->out[0].data)[task * d + i] = (float)(x.l > 0 ? x.o[i] / x.l : 0);
    ((float *)c->out[1].data)[task] = x.l > 0 ? (float)(x.m + log(x.l)) : -INFINITY;
}

static void run(const sn_call *c) { sn_team_run(c->team, sn_elements(&c->out[1]), row_task, (void *)c); }

const sn_kernel sn_ring_attention_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .takes = sn_attention_takes, .scratch = sn_softmax_scratch, .run = run},
    {0},
};
