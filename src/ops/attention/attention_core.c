#include "ops/attention/attention_core.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/attention/attention.h"

enum { TILE = SN_ATTENTION_TILE, CHUNK = SN_ATTENTION_CHUNK, SUB = SN_ATTENTION_ROWS, FEW_ROWS = 16 };

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int padded(int64_t d) { return (int)sn_round_up((size_t)d, 16); }

void sn_attention_key_rows(const sn_attention_keys *keys, int64_t position, int n, const void **k, const void **v) {
    for (int i = 0; i < n;) {
        int64_t offset = position + i, base = 0, run = n - i;
        bool valid = true;
        if (keys->table) {
            int64_t column = offset / keys->block_tokens, block = column < keys->n_table ? keys->table[column] : -1;
            valid = block >= 0 && block < keys->n_blocks;
            base = block * keys->block_bytes;
            offset %= keys->block_tokens;
            run = min64(run, keys->block_tokens - offset);
        }
        for (int64_t r = 0; r < run; r++, i++) {
            k[i] = valid ? keys->k + base + (offset + r) * keys->stride : NULL;
            v[i] = valid ? keys->v + base + (offset + r) * keys->v_stride : NULL;
        }
    }
}

int64_t sn_attention_max_rows(int64_t group) { return max64(1, 192 / group) * group; }

/* Takes n floats (or ints) from scratch, aligned to 64 bytes; only counts when there is no scratch. */
static void *take(char *scratch, size_t *used, int64_t n) {
    void *p = scratch ? scratch + *used : NULL;
    *used += sn_round_up((size_t)n * 4, 64);
    return p;
}

static size_t lay(sn_attention_rows *r, int64_t max_rows, int64_t d, char *scratch) {
    size_t used = 0;
    int64_t dp = padded(d);
    *r = (sn_attention_rows){.d = (int)d, .dp = (int)dp};
    r->q = take(scratch, &used, max_rows * dp);
    r->o = take(scratch, &used, max_rows * dp);
    r->row_o = take(scratch, &used, max_rows * dp);
    r->m = take(scratch, &used, max_rows);
    r->l = take(scratch, &used, max_rows);
    r->row_m = take(scratch, &used, max_rows);
    r->row_l = take(scratch, &used, max_rows);
    r->lo = take(scratch, &used, max_rows);
    r->hi = take(scratch, &used, max_rows);
    r->tile_lo = take(scratch, &used, SUB);
    r->tile_hi = take(scratch, &used, SUB);
    r->kt = take(scratch, &used, d * TILE);
    r->vt = take(scratch, &used, TILE * dp);
    r->scores = take(scratch, &used, SUB * TILE);
    return used;
}

size_t sn_attention_rows_bytes(int64_t max_rows, int64_t d) {
    sn_attention_rows r;
    return lay(&r, max_rows, d, NULL);
}

void sn_attention_rows_lay(sn_attention_rows *r, int64_t max_rows, int64_t d, void *scratch) { lay(r, max_rows, d, scratch); }

void sn_attention_rows_load(const sn_attention_isa *isa, sn_attention_rows *r, sn_dtype form, const char *q, size_t row_bytes, int n_tokens,
                            int group, int64_t first, int64_t window) {
    size_t head_bytes = (size_t)r->d * (size_t)sn_dtypes[form].bytes;
    r->n = 0;
    for (int t = 0; t < n_tokens; t++)
        for (int h = 0; h < group; h++, r->n++) {
            const void *row = q + (size_t)t * row_bytes + (size_t)h * head_bytes;
            isa->load(form, &row, 1, r->d, r->dp, r->q + (size_t)r->n * (size_t)r->dp);
            r->hi[r->n] = (int)(first + t);
            r->lo[r->n] = window > 0 ? (int)max64(0, first + t - window + 1) : 0;
        }
}

/* Where the keys and values of one tile lie. */
typedef struct tile {
    int n;
    const void *k[TILE], *v[TILE];
    int64_t k_bytes, v_bytes; /* of one row */
} tile;

static void find_tile(const sn_attention_keys *keys, int64_t position, int64_t n, int64_t d, tile *x) {
    x->n = (int)max64(0, min64(n, TILE));
    x->k_bytes = d * sn_dtypes[keys->k_form].bytes;
    x->v_bytes = d * sn_dtypes[keys->v_form].bytes;
    sn_attention_key_rows(keys, position, x->n, x->k, x->v);
}

/* Asks for 16 rows from `first`, into the second-level cache. Inline, for gcc drops calls that only prefetch as pure. */
static inline __attribute__((always_inline)) void fetch(const void *const *rows, int first, int n, int64_t bytes) {
    for (int r = first; r < first + 16 && r < n; r++)
        for (int64_t i = 0; i < bytes && rows[r]; i += 64) __builtin_prefetch((const char *)rows[r] + i, 0, 2);
}

/* Whether rows of whole f32 vectors lie at one distance, and so can be read where they are. */
static bool evenly_spaced(const sn_attention_rows *r, sn_dtype form, const void *const *rows, int n, int64_t stride) {
    if (form != SN_F32 || r->d != r->dp || stride % 4) return false;
    for (int i = 0; i < n; i++)
        if (!rows[i] || (const char *)rows[i] - (const char *)rows[0] != i * stride) return false;
    return true;
}

/* A tile of n_keys keys from `position` against rows `from` .. of the set; v[TILE][ldv] are the values. The values of
 * the next tile are asked for meanwhile, when there is one. */
static void tile_rows(const sn_attention_isa *isa, sn_attention_rows *r, int from, int64_t position, int n_keys, const float *v, int ldv,
                      const tile *next) {
    int rows = (int)min64(SUB, r->n - from), last = (int)(r->hi[from + rows - 1] - position);
    if (last < 0) return; /* rows are in token order, so the last one sees furthest */
    int keys = (int)min64(n_keys, last + 1), n = padded(keys);
    for (int i = 0; i < rows; i++) {
        r->tile_lo[i] = (int)(r->lo[from + i] - position);
        r->tile_hi[i] = (int)(r->hi[from + i] - position);
    }
    if (r->tile_lo[0] >= keys) return; /* the window has passed */
    float *o = r->o + (size_t)from * (size_t)r->dp;
    isa->gemm(rows, n, r->d, r->q + (size_t)from * (size_t)r->dp, r->dp, 1, r->kt, TILE, r->scores, TILE, false);
    isa->softmax(rows, n, r->c, r->tile_lo, r->tile_hi, r->scores, r->m + from, r->l + from, o, r->dp);
    for (int i = 0, step = next->n ? 16 : TILE; i < keys; i += step) {
        fetch(next->v, i, next->n, next->v_bytes);
        isa->gemm(rows, r->dp, (int)min64(step, keys - i), r->scores + i, TILE, 1, v + (size_t)i * (size_t)ldv, ldv, o, r->dp, true);
    }
}

void sn_attention_rows_chunk(const sn_attention_isa *isa, sn_attention_rows *r, const sn_attention_keys *keys, int64_t chunk) {
    tile now, next = {0};
    bool few = r->n <= FEW_ROWS; /* memory decides: ask ahead, copy nothing */
    for (int i = 0; i < r->n; i++) {
        r->m[i] = -INFINITY;
        r->l[i] = 0;
    }
    memset(r->o, 0, (size_t)r->n * (size_t)r->dp * sizeof(float));
    int64_t all = (int64_t)r->hi[r->n - 1] + 1, from = max64(chunk * CHUNK, r->lo[0] / TILE * TILE), end = min64((chunk + 1) * CHUNK, all);
    for (int64_t p = from; p < end; p += TILE) {
        find_tile(keys, p, end - p, r->d, &now);
        if (few) find_tile(keys, p + TILE, all - p - TILE, r->d, &next);
        for (int i = 0; i < now.n; i += 16) {
            fetch(next.k, i, next.n, next.k_bytes);
            isa->load_transposed(keys->k_form, now.k + i, (int)min64(16, now.n - i), r->d, r->kt + i);
        }
        bool there = few && evenly_spaced(r, keys->v_form, now.v, now.n, keys->v_stride);
        if (!there) isa->load(keys->v_form, now.v, now.n, r->d, r->dp, r->vt);
        for (int i = 0; i < r->n; i += SUB)
            tile_rows(isa, r, i, p, now.n, there ? now.v[0] : r->vt, there ? (int)(keys->v_stride / 4) : r->dp, &next);
    }
}

void sn_attention_rows_chunks(const sn_attention_rows *r, int64_t *first, int64_t *last) {
    *first = r->lo[0] / CHUNK;
    *last = r->hi[r->n - 1] / CHUNK;
}

void sn_attention_rows_start(sn_attention_rows *r) {
    for (int i = 0; i < r->n; i++) {
        r->row_m[i] = -INFINITY;
        r->row_l[i] = 0;
    }
    memset(r->row_o, 0, (size_t)r->n * (size_t)r->dp * sizeof(float));
}

void sn_attention_rows_run(const sn_attention_isa *isa, sn_attention_rows *r, const sn_attention_keys *keys) {
    sn_attention_rows_start(r);
    sn_attention_rows_meet(isa, r, keys);
}

void sn_attention_rows_meet(const sn_attention_isa *isa, sn_attention_rows *r, const sn_attention_keys *keys) {
    int64_t first, last;
    sn_attention_rows_chunks(r, &first, &last);
    for (int64_t chunk = first; chunk <= last; chunk++) {
        sn_attention_rows_chunk(isa, r, keys, chunk);
        isa->join(r->n, r->dp, r->m, r->l, r->o, r->row_m, r->row_l, r->row_o);
    }
}

void sn_attention_rows_store(const sn_attention_isa *isa, const sn_attention_rows *r, sn_dtype form, char *o, size_t row_bytes,
                             int n_tokens, int group) {
    size_t head_bytes = (size_t)r->d * (size_t)sn_dtypes[form].bytes;
    for (int t = 0, i = 0; t < n_tokens; t++)
        for (int h = 0; h < group; h++, i++)
            isa->store(form, r->row_o + (size_t)i * (size_t)r->dp, r->row_l[i] != 0 ? 1 / r->row_l[i] : 0, r->d,
                       o + (size_t)t * row_bytes + (size_t)h * head_bytes);
}

void sn_attention_rows_store_lse(const sn_attention_rows *r, float *lse, int64_t heads, int64_t group) {
    for (int i = 0; i < r->n; i++) lse[i / group * heads + i % group] = (float)((double)r->row_m[i] * M_LN2 + log((double)r->row_l[i]));
}

int64_t sn_attention_run_length(const int32_t *seq_start, int64_t t, int64_t end, int64_t *start) {
    int64_t n = 1;
    while (t + n < end && seq_start[t + n] == seq_start[t]) n++;
    *start = max64(0, min64(seq_start[t], t));
    return n;
}

typedef struct job {
    const sn_call *c;
    const sn_attention_isa *isa;
    int64_t n, d, kv_heads, group, window, max_rows, tokens; /* tokens of a task */
    size_t member_bytes;
} job;

static job job_of(const sn_call *c) {
    int64_t d = c->attrs.i[SN_ATTENTION_HEAD_DIM], kv_heads = sn_cols(&c->in[1]) / d, group = sn_cols(&c->in[0]) / d / kv_heads;
    job b = {.c = c, .n = sn_rows(&c->in[0]), .d = d, .kv_heads = kv_heads, .group = group, .window = c->attrs.i[SN_ATTENTION_WINDOW]};
    b.max_rows = sn_attention_max_rows(group);
    b.tokens = b.max_rows / group;
    b.member_bytes = sn_attention_rows_bytes(b.max_rows, d);
    return b;
}

static void block_task(void *context, int64_t task, int member) {
    const job *b = context;
    const sn_tensor *q = &b->c->in[0], *k = &b->c->in[1], *v = &b->c->in[2];
    int64_t blocks = (b->n + b->tokens - 1) / b->tokens, g = task % b->kv_heads, heads = b->kv_heads * b->group;
    int64_t t = (blocks - 1 - task / b->kv_heads) * b->tokens, end = min64(t + b->tokens, b->n); /* the longest rows come first */
    const int32_t *seq_start = b->c->in[3].data;
    size_t q_row = sn_row_bytes(q), q_head = (size_t)(g * b->group * b->d) * (size_t)sn_dtypes[q->dtype].bytes;
    sn_attention_rows r;
    sn_attention_rows_lay(&r, b->max_rows, b->d, (char *)b->c->scratch + (size_t)member * b->member_bytes);
    r.c = (float)(b->c->attrs.f[SN_ATTENTION_SCALE] * M_LOG2E);
    sn_attention_keys keys = {
        .k_form = k->dtype, .v_form = v->dtype, .stride = (int64_t)sn_row_bytes(k), .v_stride = (int64_t)sn_row_bytes(v)};
    while (t < end) {
        int64_t start, n = sn_attention_run_length(seq_start, t, end, &start);
        keys.k = (const char *)k->data + start * keys.stride + g * b->d * sn_dtypes[k->dtype].bytes;
        keys.v = (const char *)v->data + start * keys.v_stride + g * b->d * sn_dtypes[v->dtype].bytes;
        sn_attention_rows_load(b->isa, &r, q->dtype, (const char *)q->data + (size_t)t * q_row + q_head, q_row, (int)n, (int)b->group,
                               t - start, b->window);
        sn_attention_rows_run(b->isa, &r, &keys);
        sn_attention_rows_store(b->isa, &r, q->dtype, (char *)b->c->out[0].data + (size_t)t * q_row + q_head, q_row, (int)n, (int)b->group);
        sn_attention_rows_store_lse(&r, (float *)b->c->out[1].data + t * heads + g * b->group, heads, b->group);
        t += n;
    }
}

void sn_attention_run(const sn_call *c, const sn_attention_isa *isa) {
    job b = job_of(c);
    b.isa = isa;
    sn_team_run(c->team, (b.n + b.tokens - 1) / b.tokens * b.kv_heads, block_task, &b);
}

size_t sn_attention_scratch(const sn_call *c, int n_threads) { return (size_t)n_threads * job_of(c).member_bytes; }

bool sn_attention_takes(const sn_call *c) {
    return sn_dtype_is_float(c->in[0].dtype) && sn_dtype_is_float(c->in[1].dtype) && sn_dtype_is_float(c->in[2].dtype);
}
