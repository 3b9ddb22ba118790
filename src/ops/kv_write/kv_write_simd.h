/* The SIMD kernel of kv_write, compiled by kv_write_avx2.c and kv_write_avx512.c. */
#include "ops/attention/attention_math.h"
#include "ops/kv_write/kv_write.h"

enum { TOKENS = 16 }; /* of a task */

static void convert(sn_dtype from, const char *x, sn_dtype to, char *y, int64_t n) {
    if (from == to) {
        memcpy(y, x, (size_t)n * form_bytes(from));
        return;
    }
    for (int64_t i = 0; i < n; i += SN_LANES) {
        const void *in = form_at(from, x, i);
        void *out = (char *)y + (size_t)i * form_bytes(to);
        int lanes = (int)(n - i);
        if (lanes >= SN_LANES) vf_store_form(to, out, vf_load_form(from, in));
        else vf_store_part(to, out, vf_load_part(from, in, lanes), lanes);
    }
}

static void tokens_task(void *context, int64_t task, int member) {
    const sn_call *c = context;
    (void)member;
    const sn_tensor *cache = &c->in[0];
    int64_t heads = cache->shape.d[2], tokens = cache->shape.d[3], d = cache->shape.d[4], n = c->in[3].shape.d[0];
    size_t head_bytes = (size_t)d * form_bytes(cache->dtype);
    for (int64_t t = task * TOKENS; t < n && t < (task + 1) * TOKENS; t++) {
        int64_t slot = ((const int32_t *)c->in[3].data)[t];
        if (slot < 0 || slot >= cache->shape.d[0] * tokens) continue;
        for (int which = 0; which < 2; which++)
            for (int64_t g = 0; g < heads; g++) {
                const sn_tensor *x = &c->in[1 + which];
                int64_t row = ((slot / tokens * 2 + which) * heads + g) * tokens + slot % tokens;
                convert(x->dtype, form_at(x->dtype, x->data, (t * heads + g) * d), cache->dtype,
                        (char *)cache->data + (size_t)row * head_bytes, d);
            }
    }
}

static void run(const sn_call *c) { sn_team_run(c->team, (c->in[3].shape.d[0] + TOKENS - 1) / TOKENS, tokens_task, (void *)c); }

static bool takes(const sn_call *c) {
    return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->in[1].dtype) && sn_dtype_is_float(c->in[2].dtype);
}
