/* The row sets of attention_core.h over the keys of a visiting run: since places ascend, a row sees one run of them, and of
 * later rows none of it begins or ends earlier. Tiles that no row of a set sees are not touched. */
#include "ops/ring_attention/ring_attention_core.h"

#include <math.h>
#include <string.h>

#include "ops/ring_attention/ring_attention.h"

typedef struct job {
    const sn_call *c;
    const sn_attention_isa *isa;
    int64_t n, n_keys, d, kv_heads, group, window, max_rows, tokens; /* tokens of a task */
    size_t member_bytes;
} job;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static job job_of(const sn_call *c) {
    int64_t d = c->attrs.i[SN_RING_ATTENTION_HEAD_DIM], kv_heads = sn_cols(&c->in[1]) / d, group = sn_cols(&c->in[0]) / d / kv_heads;
    job b = {.c = c, .n = sn_rows(&c->in[0]), .n_keys = sn_rows(&c->in[1]), .d = d, .kv_heads = kv_heads, .group = group};
    b.window = c->attrs.i[SN_RING_ATTENTION_WINDOW];
    b.max_rows = sn_attention_max_rows(group);
    b.tokens = b.max_rows / group;
    b.member_bytes = sn_attention_rows_bytes(b.max_rows, d);
    return b;
}

/* Rows lo .. hi of the keys that token t sees; hi < lo: none. */
static void seen_by(const job *b, int64_t t, int *lo, int *hi) {
    const int32_t *index = b->c->in[3].data, *keys = b->c->in[4].data;
    *lo = (int)sn_count_below(keys, b->n_keys, sn_first_place(index, b->c->in[5].data, t, b->window));
    *hi = (int)sn_count_below(keys, b->n_keys, (int64_t)index[t] + 1) - 1;
}

static size_t state_at(const job *b, int64_t t, int64_t head) { return (size_t)(t * b->kv_heads * b->group + head); }

/* A block that sees nothing of this run keeps what it has. */
static void keep(const job *b, int64_t t, int64_t n, int64_t g) {
    const sn_tensor *in = b->c->in, *out = b->c->out;
    size_t width = (size_t)(b->group * b->d);
    for (int64_t i = t; i < t + n; i++) {
        size_t at = state_at(b, i, g * b->group);
        float *o = (float *)out[0].data + at * (size_t)b->d, *lse = (float *)out[1].data + at;
        if (sn_has(b->c, 6)) {
            const float *o_in = (const float *)in[6].data + at * (size_t)b->d, *lse_in = (const float *)in[7].data + at;
            if (o != o_in) memcpy(o, o_in, width * sizeof *o);
            if (lse != lse_in) memcpy(lse, lse_in, (size_t)b->group * sizeof *lse);
            continue;
        }
        memset(o, 0, width * sizeof *o);
        for (int64_t h = 0; h < b->group; h++) lse[h] = -INFINITY;
    }
}

/* The state as the rows' m, l and o: l is 1, for o is normalised. */
static void load_state(const job *b, sn_attention_rows *r, int64_t t, int64_t g) {
    sn_attention_rows_start(r);
    if (!sn_has(b->c, 6)) return;
    for (int i = 0; i < r->n; i++) {
        size_t at = state_at(b, t + i / b->group, g * b->group + i % b->group);
        const void *o = (const float *)b->c->in[6].data + at * (size_t)b->d;
        float lse = ((const float *)b->c->in[7].data)[at];
        if (lse == -INFINITY) continue;
        b->isa->load(SN_F32, &o, 1, r->d, r->dp, r->row_o + (size_t)i * (size_t)r->dp);
        r->row_m[i] = lse * (float)M_LOG2E;
        r->row_l[i] = 1;
    }
}

static void block_task(void *context, int64_t task, int member) {
    const job *b = context;
    const sn_tensor *q = &b->c->in[0], *k = &b->c->in[1], *v = &b->c->in[2];
    int64_t blocks = (b->n + b->tokens - 1) / b->tokens, g = task % b->kv_heads;
    int64_t t = (blocks - 1 - task / b->kv_heads) * b->tokens, n = min64(b->tokens, b->n - t); /* the longest rows come first */
    size_t q_row = sn_row_bytes(q), column = (size_t)(g * b->group * b->d);
    sn_attention_rows r;
    int first, last, ignored;
    seen_by(b, t, &first, &ignored);
    seen_by(b, t + n - 1, &ignored, &last);
    if (last < first) {
        keep(b, t, n, g);
        return;
    }
    sn_attention_rows_lay(&r, b->max_rows, b->d, (char *)b->c->scratch + (size_t)member * b->member_bytes);
    r.c = (float)(b->c->attrs.f[SN_RING_ATTENTION_SCALE] * M_LOG2E);
    sn_attention_rows_load(b->isa, &r, q->dtype, (const char *)q->data + (size_t)t * q_row + column * (size_t)sn_dtypes[q->dtype].bytes,
                           q_row, (int)n, (int)b->group, 0, 0);
    for (int i = 0; i < r.n; i++) {
        if (i % b->group == 0) seen_by(b, t + i / b->group, &r.lo[i], &r.hi[i]);
        else r.lo[i] = r.lo[i - 1], r.hi[i] = r.hi[i - 1];
    }
    sn_attention_keys keys = {
        .k_form = k->dtype, .v_form = v->dtype, .stride = (int64_t)sn_row_bytes(k), .v_stride = (int64_t)sn_row_bytes(v)};
    keys.k = (const char *)k->data + g * b->d * sn_dtypes[k->dtype].bytes;
    keys.v = (const char *)v->data + g * b->d * sn_dtypes[v->dtype].bytes;
    load_state(b, &r, t, g);
    sn_attention_rows_meet(b->isa, &r, &keys);
    sn_attention_rows_store(b->isa, &r, SN_F32, (char *)b->c->out[0].data + (state_at(b, t, 0) * (size_t)b->d + column) * sizeof(float),
                            sn_row_bytes(&b->c->out[0]), (int)n, (int)b->group);
    sn_attention_rows_store_lse(&r, (float *)b->c->out[1].data + state_at(b, t, g * b->group), b->kv_heads * b->group, b->group);
}

void sn_ring_attention_run(const sn_call *c, const sn_attention_isa *isa) {
    job b = job_of(c);
    b.isa = isa;
    sn_team_run(c->team, (b.n + b.tokens - 1) / b.tokens * b.kv_heads, block_task, &b);
}
