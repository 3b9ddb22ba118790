#include <math.h>

#include "ops/attention/attention_reference.h"
#include "ops/paged_attention/paged_attention.h"

/* Index of the first element of key (which = 0) or value (1) p of kv head g; -1: no such block. */
static int64_t cache_row(const sn_call *c, int64_t sequence, int64_t p, int which, int64_t g) {
    const sn_shape *s = &c->in[1].shape;
    int64_t columns = c->in[2].shape.d[1], column = p / s->d[3];
    if (column >= columns) return -1;
    int64_t block = ((const int32_t *)c->in[2].data)[sequence * columns + column];
    if (block < 0 || block >= s->d[0]) return -1;
    return (((block * 2 + which) * s->d[2] + g) * s->d[3] + p % s->d[3]) * s->d[4];
}

/* One row after another with an online softmax over single keys, in f64. */
static void row_task(void *context, int64_t task, int member) {
    const sn_call *c = context;
    int64_t d = c->attrs.i[SN_PAGED_ATTENTION_HEAD_DIM], window = c->attrs.i[SN_PAGED_ATTENTION_WINDOW];
    int64_t heads = sn_cols(&c->in[0]) / d, group = heads / c->in[1].shape.d[2];
    int64_t t = task / heads, h = task % heads, g = h / group;
    int64_t sequence = ((const int32_t *)c->in[3].data)[t], last = ((const int32_t *)c->in[4].data)[t];
    bool idle = sequence < 0 || sequence >= c->in[2].shape.d[0];
    double *o = (double *)c->scratch + member * d, m = -INFINITY, l = 0;
    for (int64_t i = 0; i < d; i++) o[i] = 0;
    for (int64_t j = window > 0 && last - window + 1 > 0 ? last - window + 1 : 0; j <= last && !idle; j++) {
        int64_t k = cache_row(c, sequence, j, 0, g), v = cache_row(c, sequence, j, 1, g);
        double s = 0;
        for (int64_t i = 0; i < d && k >= 0; i++)
            s += sn_element(&c->in[0], t, h * d + i) * sn_form_get(c->in[1].dtype, c->in[1].data, k + i);
        s *= c->attrs.f[SN_PAGED_ATTENTION_SCALE];
        double top = s > m ? s : m, keep = exp(m - top), p = exp(s - top);
        l = l * keep + p;
        for (int64_t i = 0; i < d; i++) o[i] = o[i] * keep + (v >= 0 ? p * sn_form_get(c->in[1].dtype, c->in[1].data, v + i) : 0);
        m = top;
    }
    for (int64_t i = 0; i < d; i++) sn_set_element(&c->out[0], t, h * d + i, l != 0 ? o[i] / l : 0);
}

static void run(const sn_call *c) {
    sn_team_run(c->team, sn_elements(&c->in[0]) / c->attrs.i[SN_PAGED_ATTENTION_HEAD_DIM], row_task, (void *)c);
}

static size_t scratch(const sn_call *c, int n_threads) {
    return (size_t)n_threads * (size_t)c->attrs.i[SN_PAGED_ATTENTION_HEAD_DIM] * sizeof(double);
}

static bool takes(const sn_call *c) { return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->in[1].dtype); }

const sn_kernel sn_paged_attention_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .scratch = scratch, .run = run},
    {0},
};
