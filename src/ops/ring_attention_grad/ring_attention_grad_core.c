/* The tiles of attention_grad_core.h over a visiting run: dq by (key/value head, query block), dk and dv by (key/value head, key
 * block), each written once. Since places ascend, a query sees one run of the keys and a key is seen by one run of the queries. */
#include <math.h>
#include <string.h>

#include "ops/attention_grad/attention_grad_core.h"
#include "ops/ring_attention/ring_attention_core.h"
#include "ops/ring_attention_grad/ring_attention_grad.h"

enum { TILE = SN_ATTENTION_TILE, SUB = SN_ATTENTION_ROWS };

typedef sn_attention_grad_job job;
typedef sn_attention_grad_tiles tiles;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t n_keys(const job *b) { return sn_rows(&b->c->in[2]); }

/* Keys lo .. hi that token t sees, as far as they lie in tile j .. j + n - 1 and relative to it; hi < lo: none. */
static void seen_by(const job *b, int64_t t, int64_t j, int64_t n, int *lo, int *hi) {
    const int32_t *index = b->c->in[6].data, *keys = (const int32_t *)b->c->in[7].data + j;
    *lo = (int)sn_count_below(keys, n, sn_first_place(index, b->c->in[8].data, t, b->window));
    *hi = (int)sn_count_below(keys, n, (int64_t)index[t] + 1) - 1;
}

/* What rows first .. first + rows - 1 of group tokens from t on see of a tile; false: nothing. */
static bool see(const job *b, tiles *x, int64_t t, int64_t first, int rows, int64_t j, int n) {
    for (int r = 0; r < rows; r++) {
        if (r && (first + r) % b->group) x->lo[r] = x->lo[r - 1], x->hi[r] = x->hi[r - 1];
        else seen_by(b, t + (first + r) / b->group, j, n, &x->lo[r], &x->hi[r]);
    }
    return x->lo[0] <= x->hi[rows - 1];
}

/* x[n][dp] added to rows `row` .. of head `head` of what came in, or to nothing. */
static void put(const job *b, int o, int in, int64_t row, int64_t head, float *x) {
    if (sn_has(b->c, in)) {
        const float *y = sn_attention_head(&b->c->in[in], row, head, b->d);
        for (int64_t i = 0; i < b->d; i++) x[i] += y[i];
    }
    memcpy(sn_attention_head(&b->c->out[o], row, head, b->d), x, (size_t)b->d * sizeof *x);
}

static void dq_task(void *context, int64_t task, int member) {
    const job *b = context;
    tiles x;
    sn_attention_grad_lay(b, &x, member);
    int64_t blocks = (b->n + b->tokens - 1) / b->tokens, g = task % b->kv_heads;
    int64_t t = (blocks - 1 - task / b->kv_heads) * b->tokens, n_tokens = min64(b->tokens, b->n - t); /* the longest rows come first */
    int n = (int)(n_tokens * b->group), first, last, ignored;
    seen_by(b, t, 0, n_keys(b), &first, &ignored);
    seen_by(b, t + n_tokens - 1, 0, n_keys(b), &ignored, &last);
    memset(x.sum, 0, (size_t)n * (size_t)b->dp * sizeof(float));
    if (first <= last) sn_attention_grad_load_rows(b, &x, t, g, 0, n);
    for (int64_t j = first; j <= last; j += TILE) {
        int keys = (int)min64(TILE, last + 1 - j);
        sn_attention_grad_load_keys(b, &x, j, g, keys, true);
        for (int i = 0; i < n; i += SUB) {
            int rows = (int)min64(SUB, n - i);
            if (!see(b, &x, t, i, rows, j, keys)) continue;
            int seen = x.hi[rows - 1] + 1;
            sn_attention_grad_scores(b, &x, i, rows, seen);
            b->isa->gemm(rows, (int)b->dp, seen, x.ds, TILE, 1, x.k, (int)b->dp, x.sum + (size_t)i * (size_t)b->dp, (int)b->dp, true);
        }
    }
    for (int i = 0; i < n; i++) put(b, 0, 9, t + i / b->group, g * b->group + i % b->group, x.sum + (size_t)i * (size_t)b->dp);
}

/* The tokens that see some of keys j .. j + n - 1: first and end. */
static void seen_from(const job *b, int64_t j, int64_t n, int64_t *first, int64_t *end) {
    const int32_t *index = b->c->in[6].data, *keys = b->c->in[7].data, *start = b->c->in[8].data;
    *first = sn_count_below(index, b->n, keys[j]);
    int64_t to = b->n;
    *end = *first;
    while (*end < to) {
        int64_t mid = *end + (to - *end) / 2;
        if (sn_first_place(index, start, mid, b->window) <= keys[j + n - 1]) *end = mid + 1;
        else to = mid;
    }
}

static void dkv_task(void *context, int64_t task, int member) {
    const job *b = context;
    tiles x;
    sn_attention_grad_lay(b, &x, member);
    int64_t j = task / b->kv_heads * TILE, g = task % b->kv_heads, t, end;
    int n = (int)min64(TILE, n_keys(b) - j);
    float *dk = x.sum, *dv = x.dv;
    memset(dk, 0, (size_t)n * (size_t)b->dp * sizeof(float));
    memset(dv, 0, (size_t)n * (size_t)b->dp * sizeof(float));
    seen_from(b, j, n, &t, &end);
    if (t < end) sn_attention_grad_load_keys(b, &x, j, g, n, false);
    for (int64_t first = 0, n_rows = (end - t) * b->group; first < n_rows; first += SUB) {
        int rows = (int)min64(SUB, n_rows - first);
        if (!see(b, &x, t, first, rows, j, n)) continue;
        int seen = x.hi[rows - 1] + 1;
        sn_attention_grad_load_rows(b, &x, t, g, first, rows);
        sn_attention_grad_scores(b, &x, 0, rows, seen);
        b->isa->gemm(seen, (int)b->dp, rows, x.s, 1, TILE, x.dout, (int)b->dp, dv, (int)b->dp, true);
        b->isa->gemm(seen, (int)b->dp, rows, x.ds, 1, TILE, x.q, (int)b->dp, dk, (int)b->dp, true);
    }
    for (int i = 0; i < n; i++) {
        put(b, 1, 10, j + i, g, dk + (size_t)i * (size_t)b->dp);
        put(b, 2, 11, j + i, g, dv + (size_t)i * (size_t)b->dp);
    }
}

void sn_ring_attention_grad_run(const sn_call *c, const sn_attention_isa *isa) {
    job b = sn_attention_grad_job_of(c);
    sn_attention_grad_begin(&b, isa);
    if (c->attrs.i[SN_RING_ATTENTION_GRAD_OF] == SN_RING_OF_QUERIES)
        sn_team_run(c->team, (b.n + b.tokens - 1) / b.tokens * b.kv_heads, dq_task, &b);
    else sn_team_run(c->team, (n_keys(&b) + TILE - 1) / TILE * b.kv_heads, dkv_task, &b);
}
