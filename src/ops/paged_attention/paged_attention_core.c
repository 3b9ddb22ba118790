/* Tokens are gathered into runs of one sequence at consecutive positions. With many runs a task is a run and a
 * key/value head; with few (decoding) a task is one chunk of its keys, and the chunks are joined in order afterwards. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/attention/attention_core.h"
#include "ops/paged_attention/paged_attention.h"

enum { TASKS_A_THREAD = 4 }; /* fewer tasks than this: chunks are spread over the threads */

typedef struct run_of {
    int32_t token, n_tokens; /* n_tokens 0: one idle token */
    int32_t chunks;          /* a head's tasks when spread */
    int32_t first_chunk;
    int64_t task, partial; /* first task; first float of its partial results */
} run_of;

typedef struct job {
    const sn_call *c;
    const sn_attention_isa *isa;
    int64_t n, d, dp, kv_heads, group, window, max_rows, block_tokens, n_runs;
    run_of *runs;
    char *members;
    float *partial;
    size_t runs_bytes, member_bytes, partial_bytes;
    int64_t spread_tokens; /* most tokens whose chunks are spread */
    int64_t n_partial;     /* floats that these runs' partial results would take */
} job;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static job job_of(const sn_call *c, int n_threads) {
    const int64_t *cache = c->in[1].shape.d;
    int64_t d = cache[4], kv_heads = cache[2], capacity = c->in[2].shape.d[1] * cache[3];
    job b = {.c = c, .n = sn_rows(&c->in[0]), .d = d, .kv_heads = kv_heads, .group = sn_cols(&c->in[0]) / d / kv_heads};
    b.dp = (int64_t)sn_round_up((size_t)d, 16);
    b.block_tokens = cache[3];
    b.window = c->attrs.i[SN_PAGED_ATTENTION_WINDOW];
    b.max_rows = sn_attention_max_rows(b.group);
    b.runs_bytes = sn_round_up((size_t)b.n * sizeof(run_of), 64);
    b.member_bytes = sn_attention_rows_bytes(b.max_rows, d);
    if (n_threads > 1) b.spread_tokens = min64(b.n, max64(2, (TASKS_A_THREAD * n_threads + kv_heads - 1) / kv_heads));
    if (b.window > 0 && b.window < capacity) capacity = b.window + SN_ATTENTION_CHUNK + b.spread_tokens;
    int64_t chunks = (capacity + SN_ATTENTION_CHUNK - 1) / SN_ATTENTION_CHUNK;
    b.partial_bytes = (size_t)(b.spread_tokens * b.group * b.kv_heads * chunks * (b.dp + 2)) * sizeof(float);
    return b;
}

static void find_runs(job *b) {
    const int32_t *sequence = b->c->in[3].data, *positions = b->c->in[4].data;
    int64_t most = b->max_rows / b->group, task = 0, partial = 0;
    b->n_runs = 0;
    for (int64_t t = 0; t < b->n;) {
        run_of *r = &b->runs[b->n_runs++];
        *r = (run_of){.token = (int32_t)t++, .task = task, .partial = partial};
        int32_t first = positions[r->token];
        if (sequence[r->token] < 0 || sequence[r->token] >= b->c->in[2].shape.d[0] || first < 0) continue;
        r->n_tokens = 1;
        while (t < b->n && r->n_tokens < most && sequence[t] == sequence[r->token] && positions[t] == first + r->n_tokens)
            t++, r->n_tokens++;
        r->first_chunk = (int32_t)(b->window > 0 ? max64(0, first - b->window + 1) / SN_ATTENTION_CHUNK : 0);
        r->chunks = (first + r->n_tokens - 1) / SN_ATTENTION_CHUNK - r->first_chunk + 1;
        task += r->chunks * b->kv_heads;
        partial += r->chunks * b->kv_heads * r->n_tokens * b->group * (b->dp + 2);
    }
    b->n_partial = partial;
}

static char *head_at(const job *b, const sn_tensor *x, int64_t t, int64_t g) {
    return (char *)x->data + (size_t)t * sn_row_bytes(x) + (size_t)(g * b->group * b->d) * (size_t)sn_dtypes[x->dtype].bytes;
}

static void prepare(const job *b, const run_of *run, int64_t g, int member, sn_attention_rows *r, sn_attention_keys *keys) {
    const sn_tensor *q = &b->c->in[0], *cache = &b->c->in[1], *table = &b->c->in[2];
    int64_t head_bytes = b->block_tokens * b->d * sn_dtypes[cache->dtype].bytes;
    sn_attention_rows_lay(r, b->max_rows, b->d, b->members + (size_t)member * b->member_bytes);
    r->c = (float)(b->c->attrs.f[SN_PAGED_ATTENTION_SCALE] * M_LOG2E);
    sn_attention_rows_load(b->isa, r, q->dtype, head_at(b, q, run->token, g), sn_row_bytes(q), run->n_tokens, (int)b->group,
                           ((const int32_t *)b->c->in[4].data)[run->token], b->window);
    *keys =
        (sn_attention_keys){.k_form = cache->dtype, .v_form = cache->dtype, .n_blocks = cache->shape.d[0], .block_tokens = b->block_tokens};
    keys->k = (const char *)cache->data + g * head_bytes;
    keys->v = keys->k + b->kv_heads * head_bytes;
    keys->stride = keys->v_stride = b->d * sn_dtypes[cache->dtype].bytes;
    keys->block_bytes = 2 * b->kv_heads * head_bytes;
    keys->n_table = table->shape.d[1];
    keys->table = (const int32_t *)table->data + ((const int32_t *)b->c->in[3].data)[run->token] * keys->n_table;
}

static void finish(const job *b, const run_of *run, int64_t g, const sn_attention_rows *r) {
    const sn_tensor *o = &b->c->out[0];
    sn_attention_rows_store(b->isa, r, o->dtype, head_at(b, o, run->token, g), sn_row_bytes(o), run->n_tokens, (int)b->group);
}

static void run_task(void *context, int64_t task, int member) {
    const job *b = context;
    const run_of *run = &b->runs[b->n_runs - 1 - task / b->kv_heads]; /* the end of a prompt sees the most keys: first */
    int64_t g = task % b->kv_heads;
    if (!run->n_tokens) {
        const sn_tensor *o = &b->c->out[0];
        memset(head_at(b, o, run->token, g), 0, (size_t)(b->group * b->d) * (size_t)sn_dtypes[o->dtype].bytes);
        return;
    }
    sn_attention_rows r;
    sn_attention_keys keys;
    prepare(b, run, g, member, &r, &keys);
    sn_attention_rows_run(b->isa, &r, &keys);
    finish(b, run, g, &r);
}

static float *partial_of(const job *b, const run_of *run, int64_t g, int64_t chunk) {
    return b->partial + run->partial + (g * run->chunks + chunk) * run->n_tokens * b->group * (b->dp + 2);
}

static void chunk_task(void *context, int64_t task, int member) {
    const job *b = context;
    int64_t i = b->n_runs - 1;
    while (b->runs[i].task > task || !b->runs[i].n_tokens) i--;
    const run_of *run = &b->runs[i];
    int64_t g = (task - run->task) / run->chunks, chunk = (task - run->task) % run->chunks;
    sn_attention_rows r;
    sn_attention_keys keys;
    prepare(b, run, g, member, &r, &keys);
    sn_attention_rows_chunk(b->isa, &r, &keys, run->first_chunk + chunk);
    float *out = partial_of(b, run, g, chunk);
    memcpy(out, r.m, (size_t)r.n * sizeof(float));
    memcpy(out + r.n, r.l, (size_t)r.n * sizeof(float));
    memcpy(out + 2 * r.n, r.o, (size_t)r.n * (size_t)r.dp * sizeof(float));
}

static void join_task(void *context, int64_t task, int member) {
    const job *b = context;
    const run_of *run = &b->runs[task / b->kv_heads];
    int64_t g = task % b->kv_heads;
    if (!run->n_tokens) {
        run_task(context, (b->n_runs - 1 - task / b->kv_heads) * b->kv_heads + g, member);
        return;
    }
    sn_attention_rows r;
    sn_attention_rows_lay(&r, b->max_rows, b->d, b->members + (size_t)member * b->member_bytes);
    r.n = run->n_tokens * (int)b->group;
    sn_attention_rows_start(&r);
    for (int64_t chunk = 0; chunk < run->chunks; chunk++) {
        const float *in = partial_of(b, run, g, chunk);
        b->isa->join(r.n, r.dp, in, in + r.n, in + 2 * r.n, r.row_m, r.row_l, r.row_o);
    }
    finish(b, run, g, &r);
}

void sn_paged_attention_run(const sn_call *c, const sn_attention_isa *isa) {
    int n_threads = sn_team_size(c->team);
    job b = job_of(c, n_threads);
    b.isa = isa;
    b.runs = c->scratch;
    b.members = (char *)c->scratch + b.runs_bytes;
    b.partial = (float *)(b.members + (size_t)n_threads * b.member_bytes);
    if (!b.n) return;
    find_runs(&b);
    const run_of *last = &b.runs[b.n_runs - 1];
    int64_t tasks = b.n_runs * b.kv_heads, chunks = last->task + last->chunks * b.kv_heads;
    bool fits = (size_t)b.n_partial * sizeof(float) <= b.partial_bytes; /* always, unless a position lies beyond its block table */
    if (b.n <= b.spread_tokens && tasks < TASKS_A_THREAD * n_threads && chunks > tasks && fits) {
        sn_team_run(c->team, chunks, chunk_task, &b);
        sn_team_run(c->team, tasks, join_task, &b);
    } else {
        sn_team_run(c->team, tasks, run_task, &b);
    }
}

size_t sn_paged_attention_scratch(const sn_call *c, int n_threads) {
    job b = job_of(c, n_threads);
    return b.runs_bytes + (size_t)n_threads * b.member_bytes + b.partial_bytes;
}

bool sn_paged_attention_takes(const sn_call *c) { return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->in[1].dtype); }
