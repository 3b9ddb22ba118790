#include <string.h>

#include "ops/rope/rope.h"
#include "tensor/convert.h"

static float get(sn_dtype form, const void *p, int64_t i) {
    if (form == SN_F32) return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return form == SN_BF16 ? sn_bf16_to_f32(h) : sn_f16_to_f32(h);
}

static void put(sn_dtype form, void *p, int64_t i, float x) {
    if (form == SN_F32) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = form == SN_BF16 ? sn_f32_to_bf16(x) : sn_f32_to_f16(x);
}

static void token_task(void *context, int64_t t, int member) {
    const sn_call *c = context;
    (void)member;
    sn_dtype form = c->in[0].dtype;
    int64_t head_dim = c->attrs.i[SN_ROPE_HEAD_DIM], cols = sn_cols(&c->in[0]), half = sn_cols(&c->in[1]) / 2;
    const float *cosine = (const float *)c->in[1].data + t * 2 * half, *sine = cosine + half;
    float sign = c->attrs.i[SN_ROPE_INVERSE] ? -1.0f : 1.0f;
    size_t row = sn_row_bytes(&c->in[0]);
    const char *x = (const char *)c->in[0].data + (size_t)t * row;
    char *y = (char *)c->out[0].data + (size_t)t * row;
    if (y != x) memcpy(y, x, row);
    for (int64_t head = 0; head < cols; head += head_dim)
        for (int64_t i = head; i < head + half; i++) {
            float a = get(form, x, i), b = get(form, x, i + half), s = sign * sine[i - head], k = cosine[i - head];
            put(form, y, i, a * k - b * s);
            put(form, y, i + half, b * k + a * s);
        }
}

static void run(const sn_call *c) { sn_team_run(c->team, sn_rows(&c->in[0]), token_task, (void *)c); }

static bool takes(const sn_call *c) { return sn_dtype_is_float(c->in[0].dtype); }

const sn_kernel sn_rope_cpu[] = {{.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .run = run}, {0}};
