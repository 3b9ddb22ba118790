#include <math.h>

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
    double *o = (double *)c->scratch + member * d, m = -INFINITY, l = 0;
    bool begun = sn_has(c, 6) && ((const float *)c->in[7].data)[task] > -INFINITY;
    if (begun) {
        m = (double)((const float *)c->in[7].data)[task];
        l = 1;
    }
    for (int64_t i = 0; i < d; i++) o[i] = begun ? (double)((const float *)c->in[6].data)[task * d + i] : 0;
    for (int64_t j = 0; j < sn_rows(&c->in[1]); j++) {
        int64_t place = ((const int32_t *)c->in[4].data)[j];
        if (place < first || place > last) continue;
        double s = 0;
        for (int64_t i = 0; i < d; i++) s += sn_element(&c->in[0], t, h * d + i) * sn_element(&c->in[1], j, g * d + i);
        s *= c->attrs.f[SN_RING_ATTENTION_SCALE];
        double top = s > m ? s : m, kept = exp(m - top), p = exp(s - top);
        l = l * kept + p;
        for (int64_t i = 0; i < d; i++) o[i] = o[i] * kept + p * sn_element(&c->in[2], j, g * d + i);
        m = top;
    }
    for (int64_t i = 0; i < d; i++) ((float *)c->out[0].data)[task * d + i] = (float)(l > 0 ? o[i] / l : 0);
    ((float *)c->out[1].data)[task] = l > 0 ? (float)(m + log(l)) : -INFINITY;
}

static void run(const sn_call *c) { sn_team_run(c->team, sn_elements(&c->out[1]), row_task, (void *)c); }

static size_t scratch(const sn_call *c, int n_threads) {
    return (size_t)n_threads * (size_t)c->attrs.i[SN_RING_ATTENTION_HEAD_DIM] * sizeof(double);
}

static bool takes(const sn_call *c) {
    return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->in[1].dtype) && sn_dtype_is_float(c->in[2].dtype);
}

const sn_kernel sn_ring_attention_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .scratch = scratch, .run = run},
    {0},
};
