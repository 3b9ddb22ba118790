#include <math.h>

#include "ops/rope_table/rope_table.h"

float sn_rope_inverse_frequency(const sn_attrs *a, int64_t i) {
    float exponent = (float)(2 * i) / (float)a->i[SN_ROPE_TABLE_DIMS];
    float f = 1.0f / (float)pow(a->f[SN_ROPE_TABLE_THETA], (double)exponent);
    float factor = (float)a->f[SN_ROPE_TABLE_FACTOR];
    if (a->i[SN_ROPE_TABLE_TYPE] == SN_ROPE_TABLE_LINEAR) return f / factor;
    if (a->i[SN_ROPE_TABLE_TYPE] != SN_ROPE_TABLE_LLAMA3) return f;
    float low = (float)a->f[SN_ROPE_TABLE_LOW_FREQ_FACTOR], high = (float)a->f[SN_ROPE_TABLE_HIGH_FREQ_FACTOR];
    float context = (float)a->i[SN_ROPE_TABLE_ORIGINAL_CONTEXT];
    float wavelength = 2 * (float)M_PI / f;
    if (wavelength > context / low) return f / factor;
    if (wavelength < context / high) return f;
    float smooth = (context / wavelength - low) / (high - low);
    return (1 - smooth) * (f / factor) + smooth * f;
}

enum { ROWS = 64 }; /* tokens of a task */

static void rows_task(void *context, int64_t task, int member) {
    const sn_call *c = context;
    (void)member;
    int64_t n = c->in[0].shape.d[0], dims = c->attrs.i[SN_ROPE_TABLE_DIMS], half = dims / 2;
    int64_t from = task * ROWS, to = from + ROWS < n ? from + ROWS : n;
    const int32_t *positions = c->in[0].data;
    float *out = c->out[0].data;
    for (int64_t i = 0; i < half; i++) {
        float f = sn_rope_inverse_frequency(&c->attrs, i);
        for (int64_t t = from; t < to; t++) {
            double angle = (double)((float)positions[t] * f); /* the angle is an f32: so do the models see it */
            out[t * dims + i] = (float)cos(angle);
            out[t * dims + half + i] = (float)sin(angle);
        }
    }
}

static void run(const sn_call *c) { sn_team_run(c->team, (c->in[0].shape.d[0] + ROWS - 1) / ROWS, rows_task, (void *)c); }

static bool takes(const sn_call *c) { return c->in[0].dtype == SN_I32; }

const sn_kernel sn_rope_table_cpu[] = {{.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .run = run}, {0}};
