/* The SIMD kernel of rope, compiled by rope_avx2.c and rope_avx512.c. Memory decides, so nothing is fused: the bits are the reference's. */
#include "ops/attention/attention_math.h"
#include "ops/rope/rope.h"

enum { TOKENS = 16 }; /* of a task */

static inline void turn(sn_dtype form, char *a, char *b, sn_vf x, sn_vf y, sn_vf cosine, sn_vf sine, int n) {
    sn_vf p = vf_sub(vf_mul(x, cosine), vf_mul(y, sine)), q = vf_add(vf_mul(y, cosine), vf_mul(x, sine));
    if (n >= SN_LANES) {
        vf_store_form(form, a, p);
        vf_store_form(form, b, q);
    } else {
        vf_store_part(form, a, p, n);
        vf_store_part(form, b, q, n);
    }
}

static void tokens_task(void *context, int64_t task, int member) {
    const sn_call *c = context;
    (void)member;
    sn_dtype form = c->in[0].dtype;
    int64_t head_dim = c->attrs.i[SN_ROPE_HEAD_DIM], cols = sn_cols(&c->in[0]), half = sn_cols(&c->in[1]) / 2, n = sn_rows(&c->in[0]);
    size_t row = sn_row_bytes(&c->in[0]), element = form_bytes(form);
    sn_vf sign = vf_set(c->attrs.i[SN_ROPE_INVERSE] ? -1.0f : 1.0f);
    for (int64_t t = task * TOKENS; t < n && t < (task + 1) * TOKENS; t++) {
        const float *table = (const float *)c->in[1].data + t * 2 * half;
        const char *x = (const char *)c->in[0].data + (size_t)t * row;
        char *y = (char *)c->out[0].data + (size_t)t * row;
        if (y != x && 2 * half < head_dim) memcpy(y, x, row);
        for (int64_t i = 0; i < half; i += SN_LANES) { /* the angles stay in registers over the heads */
            int lanes = (int)(half - i < SN_LANES ? half - i : SN_LANES);
            bool whole = lanes == SN_LANES;
            sn_vf cosine = whole ? vf_load(table + i) : vf_load_part(SN_F32, table + i, lanes);
            sn_vf sine = vf_mul(sign, whole ? vf_load(table + half + i) : vf_load_part(SN_F32, table + half + i, lanes));
            for (int64_t h = 0; h < cols; h += head_dim) {
                size_t a = (size_t)(h + i) * element, b = (size_t)(h + i + half) * element;
                sn_vf u = whole ? vf_load_form(form, x + a) : vf_load_part(form, x + a, lanes);
                sn_vf v = whole ? vf_load_form(form, x + b) : vf_load_part(form, x + b, lanes);
                turn(form, y + a, y + b, u, v, cosine, sine, lanes);
            }
        }
    }
}

static void run(const sn_call *c) { sn_team_run(c->team, (sn_rows(&c->in[0]) + TOKENS - 1) / TOKENS, tokens_task, (void *)c); }

static bool takes(const sn_call *c) { return sn_dtype_is_float(c->in[0].dtype); }
