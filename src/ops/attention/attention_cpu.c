#include "ops/attention/attention.h"
#include "ops/attention/attention_core.h"
#include "ops/attention/attention_reference.h"

/* One row after another with an online softmax over single keys, in f64. */
static void row_task(void *context, int64_t task, int member) {
    const sn_call *c = context;
    int64_t d = c->attrs.i[SN_ATTENTION_HEAD_DIM], window = c->attrs.i[SN_ATTENTION_WINDOW];
    int64_t heads = sn_cols(&c->in[0]) / d, group = heads / (sn_cols(&c->in[1]) / d);
    int64_t t = task / heads, h = task % heads, g = h / group;
    int64_t from = ((const int32_t *)c->in[3].data)[t];
    if (from < 0 || from > t) from = from < 0 ? 0 : t;
    if (window > 0 && t - window + 1 > from) from = t - window + 1;
    sn_softmax_state x = {.m = -INFINITY, .o = (double *)c->scratch + member * d};
    for (int64_t i = 0; i < d; i++) x.o[i] = 0;
    for (int64_t j = from; j <= t; j++) sn_softmax_meet(c, d, c->attrs.f[SN_ATTENTION_SCALE], t, h * d, j, g * d, &x);
    for (int64_t i = 0; i < d; i++) sn_set_element(&c->out[0], t, h * d + i, x.o[i] / x.l);
    ((float *)c->out[1].data)[t * heads + h] = (float)(x.m + log(x.l));
}

static void run(const sn_call *c) { sn_team_run(c->team, sn_elements(&c->out[1]), row_task, (void *)c); }

const sn_kernel sn_attention_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .takes = sn_attention_takes, .scratch = sn_softmax_scratch, .run = run},
    {0},
};
