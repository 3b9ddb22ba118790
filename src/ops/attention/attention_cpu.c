#include <math.h>

#include "ops/attention/attention.h"
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
    double *o = (double *)c->scratch + member * d, m = -INFINITY, l = 0;
    for (int64_t i = 0; i < d; i++) o[i] = 0;
    for (int64_t j = from; j <= t; j++) {
        double s = 0;
        for (int64_t i = 0; i < d; i++) s += sn_element(&c->in[0], t, h * d + i) * sn_element(&c->in[1], j, g * d + i);
        s *= c->attrs.f[SN_ATTENTION_SCALE];
        double top = s > m ? s : m, keep = exp(m - top), p = exp(s - top);
        l = l * keep + p;
        for (int64_t i = 0; i < d; i++) o[i] = o[i] * keep + p * sn_element(&c->in[2], j, g * d + i);
        m = top;
    }
    for (int64_t i = 0; i < d; i++) sn_set_element(&c->out[0], t, h * d + i, o[i] / l);
    ((float *)c->out[1].data)[t * heads + h] = (float)(m + log(l));
}

static void run(const sn_call *c) { sn_team_run(c->team, sn_elements(&c->out[1]), row_task, (void *)c); }

static size_t scratch(const sn_call *c, int n_threads) {
    return (size_t)n_threads * (size_t)c->attrs.i[SN_ATTENTION_HEAD_DIM] * sizeof(double);
}

static bool takes(const sn_call *c) {
    return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->in[1].dtype) && sn_dtype_is_float(c->in[2].dtype);
}

const sn_kernel sn_attention_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .scratch = scratch, .run = run},
    {0},
};
