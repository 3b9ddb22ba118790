#include "ops/embedding/embedding.h"
#include "ops/math/rows.h"

enum { EMBEDDING_ROWS = 8 }; /* of one task */

static void embedding_row(const sn_tensor *table, int64_t id, const sn_tensor *y, int64_t row) {
    const int64_t columns = sn_cols(y);
    char *to = sn_element(y, row * columns);
    if (id < 0 || id >= sn_rows(table)) {
        memset(to, 0, sn_row_bytes(y));
        return;
    }
    const sn_dtype_info *info = &sn_dtypes[table->dtype];
    const char *from = (const char *)table->data + (size_t)id * sn_row_bytes(table);
    if (table->dtype == y->dtype) {
        memcpy(to, from, sn_row_bytes(y));
        return;
    }
    float buffer[SN_PIECE];
    for (int64_t at = 0; at < columns; at += SN_PIECE) { /* a piece is a whole number of blocks */
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        float *result = sn_result_f32(y->dtype, sn_element(y, row * columns + at), buffer);
        sn_to_f32(table->dtype, from + at / info->block * info->bytes, n, result);
        sn_store_f32(y->dtype, result, n, sn_element(y, row * columns + at));
    }
}

static void embedding_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int32_t *ids = c->in[0].data;
    const int64_t end = sn_min_i64((task + 1) * EMBEDDING_ROWS, sn_elements(&c->in[0]));
    for (int64_t t = task * EMBEDDING_ROWS; t < end; t++) embedding_row(&c->in[1], ids[t] - c->attrs.i[SN_EMBEDDING_FIRST], &c->out[0], t);
}

static void embedding_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), EMBEDDING_ROWS), embedding_task, (void *)c);
}

/* The gradient: tokens are sorted by id (counting sort, so that equal ids stay in index order); then a task owns a run of
 * rows of the table. It writes each row once, zero or the sum of its tokens in f32; or adds that sum to the row of `acc`. */
enum { GRAD_ROWS = 256 };

typedef struct grad_context {
    const sn_tensor *dy, *table;
    bool adds;            /* the table keeps what it holds */
    const int32_t *start; /* [V + 1]: the tokens of row v are order[start[v] .. start[v + 1] - 1] */
    const int32_t *order; /* [T] */
} grad_context;

static void sum_tokens(const grad_context *g, int64_t v) {
    const int64_t columns = sn_cols(g->table);
    float d_buffer[SN_PIECE], old_buffer[SN_PIECE], sum[SN_PIECE];
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        char *to = sn_element(g->table, v * columns + at);
        memset(sum, 0, (size_t)n * sizeof(float));
        for (int32_t k = g->start[v]; k < g->start[v + 1]; k++) {
            const float *d = sn_load_f32(g->dy->dtype, sn_element(g->dy, g->order[k] * columns + at), n, d_buffer);
            SN_EACH(i, n, sum[i] += d[i];);
        }
        if (g->adds) {
            const float *old = sn_load_f32(g->table->dtype, to, n, old_buffer);
            SN_EACH(i, n, sum[i] = old[i] + sum[i];);
        }
        sn_store_f32(g->table->dtype, sum, n, to);
    }
}

static void embedding_grad_task(void *context, int64_t task, int member) {
    (void)member;
    const grad_context *g = context;
    const int64_t end = sn_min_i64((task + 1) * GRAD_ROWS, sn_rows(g->table));
    for (int64_t v = task * GRAD_ROWS; v < end;) {
        int64_t used = v;
        while (used < end && g->start[used] == g->start[used + 1]) used++;
        if (!g->adds) memset(sn_element(g->table, v * sn_cols(g->table)), 0, (size_t)(used - v) * sn_row_bytes(g->table));
        if (used < end) sum_tokens(g, used);
        v = used + 1;
    }
}

static const sn_tensor *table_of(const sn_call *c) { return sn_has(c, 2) ? &c->in[2] : &c->out[0]; }

static void embedding_grad_run(const sn_call *c) {
    const int32_t *ids = c->in[0].data;
    const sn_tensor *table = table_of(c);
    const int64_t tokens = sn_elements(&c->in[0]), rows = sn_rows(table), first = c->attrs.i[SN_EMBEDDING_GRAD_FIRST];
    if (!sn_elements(table)) return;
    int32_t *start = c->scratch, *order = start + rows + 2;
    memset(start, 0, (size_t)(rows + 2) * sizeof *start);
    for (int64_t t = 0; t < tokens; t++)
        if (ids[t] >= first && ids[t] < first + rows) start[ids[t] - first + 2]++;
    for (int64_t v = 2; v <= rows + 1; v++) start[v] += start[v - 1];
    for (int64_t t = 0; t < tokens; t++)
        if (ids[t] >= first && ids[t] < first + rows)
            order[start[ids[t] - first + 1]++] = (int32_t)t; /* leaves start[v] at the first of v */
    grad_context g = {.dy = &c->in[1], .table = table, .adds = sn_has(c, 2), .start = start, .order = order};
    sn_team_run(c->team, sn_tasks(rows, GRAD_ROWS), embedding_grad_task, &g);
}

static size_t embedding_grad_scratch(const sn_call *c, int n_threads) {
    (void)n_threads;
    return (size_t)(sn_rows(table_of(c)) + 2 + sn_elements(&c->in[0])) * sizeof(int32_t);
}

SN_ONE_KERNEL(sn_embedding_cpu, "reference", SN_CPU_REFERENCE, NULL, embedding_run);
SN_ONE_KERNEL(sn_embedding_grad_cpu, "reference", SN_CPU_REFERENCE, embedding_grad_scratch, embedding_grad_run);
