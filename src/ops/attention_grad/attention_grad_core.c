/* Two passes that write each result once, without atomics: dq by (key/value head, query block), then dk and dv by
 * (key/value head, key block). Both compute the probabilities of a tile again from q, k and lse. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/attention_grad/attention_grad.h"
#include "ops/attention_grad/attention_grad_core.h"

enum { TILE = SN_ATTENTION_TILE, SUB = SN_ATTENTION_ROWS, DELTA_TOKENS = 16 };

typedef sn_attention_grad_job job;
typedef sn_attention_grad_tiles tiles;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static void *take(char *scratch, size_t *used, int64_t n) {
    void *p = scratch ? scratch + *used : NULL;
    *used += sn_round_up((size_t)n * 4, 64);
    return p;
}

static size_t lay(const job *b, tiles *x, char *scratch) {
    size_t used = 0;
    x->q = take(scratch, &used, b->max_rows * b->dp);
    x->dout = take(scratch, &used, b->max_rows * b->dp);
    x->sum = take(scratch, &used, b->max_rows * b->dp);
    x->lse2 = take(scratch, &used, b->max_rows);
    x->delta = take(scratch, &used, b->max_rows);
    x->lo = take(scratch, &used, SUB);
    x->hi = take(scratch, &used, SUB);
    x->kt = take(scratch, &used, b->d * TILE);
    x->vt = take(scratch, &used, b->d * TILE);
    x->k = take(scratch, &used, TILE * b->dp);
    x->s = take(scratch, &used, SUB * TILE);
    x->ds = take(scratch, &used, SUB * TILE);
    x->dv = take(scratch, &used, TILE * b->dp);
    return used;
}

job sn_attention_grad_job_of(const sn_call *c) {
    int64_t d = c->attrs.i[SN_ATTENTION_GRAD_HEAD_DIM];
    job b = {.c = c, .n = sn_rows(&c->in[1]), .d = d, .heads = sn_cols(&c->in[1]) / d, .kv_heads = sn_cols(&c->in[2]) / d};
    b.dp = (int64_t)sn_round_up((size_t)d, 16);
    b.group = b.heads / b.kv_heads;
    b.window = c->attrs.i[SN_ATTENTION_GRAD_WINDOW];
    b.max_rows = sn_attention_max_rows(b.group);
    if (b.max_rows < SUB) b.max_rows = SUB;
    b.tokens = b.max_rows / b.group;
    b.scale = (float)c->attrs.f[SN_ATTENTION_GRAD_SCALE];
    b.c2 = (float)(c->attrs.f[SN_ATTENTION_GRAD_SCALE] * M_LOG2E);
    tiles x;
    b.member_bytes = lay(&b, &x, NULL);
    b.delta_bytes = sn_round_up((size_t)(b.n * b.heads) * sizeof(float), 64);
    return b;
}

void *sn_attention_head(const sn_tensor *t, int64_t row, int64_t head, int64_t d) {
    return (char *)t->data + (size_t)row * sn_row_bytes(t) + (size_t)(head * d) * (size_t)sn_dtypes[t->dtype].bytes;
}

static void delta_task(void *context, int64_t task, int member) {
    const job *b = context;
    (void)member;
    for (int64_t t = task * DELTA_TOKENS, end = min64(t + DELTA_TOKENS, b->n); t < end; t++)
        for (int64_t h = 0; h < b->heads; h++)
            b->delta[t * b->heads + h] = b->isa->dot(b->c->in[0].dtype, sn_attention_head(&b->c->in[0], t, h, b->d), b->c->in[4].dtype,
                                                     sn_attention_head(&b->c->in[4], t, h, b->d), (int)b->d);
}

void sn_attention_grad_begin(job *b, const sn_attention_isa *isa) {
    b->isa = isa;
    b->delta = b->c->scratch;
    b->members = (char *)b->c->scratch + b->delta_bytes;
    sn_team_run(b->c->team, (b->n + DELTA_TOKENS - 1) / DELTA_TOKENS, delta_task, b);
}

void sn_attention_grad_lay(const job *b, tiles *x, int member) { lay(b, x, b->members + (size_t)member * b->member_bytes); }

void sn_attention_grad_load_rows(const job *b, tiles *x, int64_t t, int64_t g, int64_t first, int n) {
    for (int i = 0; i < n; i += SUB) {
        const void *q[SUB], *dout[SUB];
        int rows = (int)min64(SUB, n - i);
        for (int r = 0; r < rows; r++) {
            int64_t row = first + i + r, token = t + row / b->group, head = g * b->group + row % b->group;
            q[r] = sn_attention_head(&b->c->in[1], token, head, b->d);
            dout[r] = sn_attention_head(&b->c->in[0], token, head, b->d);
            x->lse2[i + r] = ((const float *)b->c->in[5].data)[token * b->heads + head] * (float)M_LOG2E;
            x->delta[i + r] = b->delta[token * b->heads + head];
        }
        b->isa->load(b->c->in[1].dtype, q, rows, (int)b->d, (int)b->dp, x->q + (size_t)i * (size_t)b->dp);
        b->isa->load(b->c->in[0].dtype, dout, rows, (int)b->d, (int)b->dp, x->dout + (size_t)i * (size_t)b->dp);
    }
}

void sn_attention_grad_load_keys(const job *b, tiles *x, int64_t first, int64_t g, int n, bool straight) {
    const void *k[TILE], *v[TILE];
    for (int i = 0; i < n; i++) {
        k[i] = sn_attention_head(&b->c->in[2], first + i, g, b->d);
        v[i] = sn_attention_head(&b->c->in[3], first + i, g, b->d);
    }
    b->isa->load_transposed(b->c->in[2].dtype, k, n, (int)b->d, x->kt);
    b->isa->load_transposed(b->c->in[3].dtype, v, n, (int)b->d, x->vt);
    if (straight) b->isa->load(b->c->in[2].dtype, k, n, (int)b->d, (int)b->dp, x->k);
}

void sn_attention_grad_scores(const job *b, tiles *x, int i, int rows, int n) {
    int columns = (n + 15) / 16 * 16;
    size_t at = (size_t)i * (size_t)b->dp;
    b->isa->gemm(rows, columns, (int)b->d, x->q + at, (int)b->dp, 1, x->kt, TILE, x->s, TILE, false);
    b->isa->gemm(rows, columns, (int)b->d, x->dout + at, (int)b->dp, 1, x->vt, TILE, x->ds, TILE, false);
    b->isa->backward(rows, columns, b->c2, b->scale, x->lo, x->hi, x->lse2 + i, x->delta + i, x->s, x->ds);
}

/* The same for rows whose tokens' offsets from the key tile are in `offset`. */
static void scores(const job *b, tiles *x, int i, int rows, const int64_t *offset, int n) {
    for (int r = 0; r < rows; r++) {
        x->hi[r] = (int)min64(offset[r], TILE);
        x->lo[r] = b->window > 0 && offset[r] - b->window + 1 > 0 ? (int)(offset[r] - b->window + 1) : 0;
    }
    sn_attention_grad_scores(b, x, i, rows, n);
}

static void dq_run(const job *b, tiles *x, int64_t t, int64_t n_tokens, int64_t start, int64_t g) {
    int n = (int)(n_tokens * b->group);
    sn_attention_grad_load_rows(b, x, t, g, 0, n);
    memset(x->sum, 0, (size_t)n * (size_t)b->dp * sizeof(float));
    int64_t from = b->window > 0 && t - b->window + 1 > start ? t - b->window + 1 : start, end = t + n_tokens;
    for (int64_t j = start + (from - start) / TILE * TILE; j < end; j += TILE) {
        sn_attention_grad_load_keys(b, x, j, g, (int)min64(TILE, end - j), true);
        for (int i = 0; i < n; i += SUB) {
            int64_t offset[SUB];
            int rows = (int)min64(SUB, n - i);
            for (int r = 0; r < rows; r++) offset[r] = t + (i + r) / b->group - j;
            int keys = (int)min64(min64(TILE, end - j), offset[rows - 1] + 1);
            if (keys <= 0 || (b->window > 0 && offset[0] - b->window + 1 >= keys)) continue;
            scores(b, x, i, rows, offset, keys);
            b->isa->gemm(rows, (int)b->dp, keys, x->ds, TILE, 1, x->k, (int)b->dp, x->sum + (size_t)i * (size_t)b->dp, (int)b->dp, true);
        }
    }
    for (int i = 0; i < n; i++)
        b->isa->store(b->c->out[0].dtype, x->sum + (size_t)i * (size_t)b->dp, 1, (int)b->d,
                      sn_attention_head(&b->c->out[0], t + i / b->group, g * b->group + i % b->group, b->d));
}

static void dq_task(void *context, int64_t task, int member) {
    const job *b = context;
    tiles x;
    sn_attention_grad_lay(b, &x, member);
    int64_t blocks = (b->n + b->tokens - 1) / b->tokens;
    int64_t t = (blocks - 1 - task / b->kv_heads) * b->tokens, end = min64(t + b->tokens, b->n); /* the longest rows come first */
    while (t < end) {
        int64_t start, n = sn_attention_run_length(b->c->in[6].data, t, end, &start);
        dq_run(b, &x, t, n, start, task % b->kv_heads);
        t += n;
    }
}

/* Keys j .. j + n - 1 of one sequence, against its queries j .. end - 1. */
static void dkv_run(const job *b, tiles *x, int64_t j, int n, int64_t end, int64_t g) {
    float *dk = x->sum, *dv = x->dv;
    size_t bytes = (size_t)n * (size_t)b->dp * sizeof(float);
    memset(dk, 0, bytes);
    memset(dv, 0, bytes);
    sn_attention_grad_load_keys(b, x, j, g, n, false);
    if (b->window > 0) end = min64(end, j + n - 1 + b->window);
    int64_t n_rows = (end - j) * b->group;
    for (int64_t first = 0; first < n_rows; first += SUB) {
        int64_t offset[SUB];
        int rows = (int)min64(SUB, n_rows - first);
        for (int r = 0; r < rows; r++) offset[r] = (first + r) / b->group;
        int keys = (int)min64(n, offset[rows - 1] + 1);
        sn_attention_grad_load_rows(b, x, j, g, first, rows);
        scores(b, x, 0, rows, offset, keys);
        b->isa->gemm(keys, (int)b->dp, rows, x->s, 1, TILE, x->dout, (int)b->dp, dv, (int)b->dp, true);
        b->isa->gemm(keys, (int)b->dp, rows, x->ds, 1, TILE, x->q, (int)b->dp, dk, (int)b->dp, true);
    }
    for (int i = 0; i < n; i++) {
        b->isa->store(b->c->out[1].dtype, dk + (size_t)i * (size_t)b->dp, 1, (int)b->d, sn_attention_head(&b->c->out[1], j + i, g, b->d));
        b->isa->store(b->c->out[2].dtype, dv + (size_t)i * (size_t)b->dp, 1, (int)b->d, sn_attention_head(&b->c->out[2], j + i, g, b->d));
    }
}

static void dkv_task(void *context, int64_t task, int member) {
    const job *b = context;
    tiles x;
    sn_attention_grad_lay(b, &x, member);
    int64_t j = task / b->kv_heads * TILE, end = min64(j + TILE, b->n), start;
    while (j < end) {
        int64_t n = sn_attention_run_length(b->c->in[6].data, j, end, &start);
        int64_t last = j + sn_attention_run_length(b->c->in[6].data, j, b->n, &start);
        dkv_run(b, &x, j, (int)n, last, task % b->kv_heads);
        j += n;
    }
}

void sn_attention_grad_run(const sn_call *c, const sn_attention_isa *isa) {
    job b = sn_attention_grad_job_of(c);
    sn_attention_grad_begin(&b, isa);
    sn_team_run(c->team, (b.n + b.tokens - 1) / b.tokens * b.kv_heads, dq_task, &b);
    sn_team_run(c->team, (b.n + TILE - 1) / TILE * b.kv_heads, dkv_task, &b);
}

size_t sn_attention_grad_scratch(const sn_call *c, int n_threads) {
    job b = sn_attention_grad_job_of(c);
    return b.delta_bytes + (size_t)n_threads * b.member_bytes;
}

bool sn_attention_grad_takes(const sn_call *c) {
    for (int i = 0; i < 5; i++)
        if (!sn_dtype_is_float(c->in[i].dtype)) return false;
    return true;
}
