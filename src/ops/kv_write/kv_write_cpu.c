#include <string.h>

#include "ops/kv_write/kv_write.h"
#include "tensor/convert.h"

static void convert(sn_dtype from, const char *x, sn_dtype to, char *y, int64_t n) {
    if (from == to) {
        memcpy(y, x, (size_t)n * (size_t)sn_dtypes[from].bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float f;
        sn_to_f32(from, x + i * sn_dtypes[from].bytes, 1, &f);
        if (to == SN_F32) memcpy(y + 4 * i, &f, 4);
        else ((uint16_t *)y)[i] = to == SN_BF16 ? sn_f32_to_bf16(f) : sn_f32_to_f16(f);
    }
}

static void token_task(void *context, int64_t t, int member) {
    const sn_call *c = context;
    (void)member;
    const sn_tensor *cache = &c->in[0];
    int64_t heads = cache->shape.d[2], tokens = cache->shape.d[3], d = cache->shape.d[4];
    int64_t slot = ((const int32_t *)c->in[3].data)[t];
    if (slot < 0 || slot >= cache->shape.d[0] * tokens) return;
    int64_t block = slot / tokens, offset = slot % tokens;
    for (int which = 0; which < 2; which++) {
        const sn_tensor *x = &c->in[1 + which];
        for (int64_t g = 0; g < heads; g++) {
            char *to = (char *)cache->data + (((block * 2 + which) * heads + g) * tokens + offset) * d * sn_dtypes[cache->dtype].bytes;
            convert(x->dtype, (const char *)x->data + (t * heads + g) * d * sn_dtypes[x->dtype].bytes, cache->dtype, to, d);
        }
    }
}

static void run(const sn_call *c) { sn_team_run(c->team, c->in[3].shape.d[0], token_task, (void *)c); }

static bool takes(const sn_call *c) {
    return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->in[1].dtype) && sn_dtype_is_float(c->in[2].dtype);
}

const sn_kernel sn_kv_write_cpu[] = {{.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .run = run}, {0}};
