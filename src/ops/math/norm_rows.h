/* What the gradients of both norms share: sums over rows by chunks of a fixed size, so that their bits do not depend on the
 * number of threads. */
#ifndef SN_OPS_MATH_NORM_ROWS_H
#define SN_OPS_MATH_NORM_ROWS_H

#include "ops/math/rows.h"

enum {
    SN_NORM_ROWS = 8,   /* rows of one task of a forward norm */
    SN_CHUNK_ROWS = 16, /* fewest rows of one chunk */
    SN_CHUNKS_MOST = 64
};

static inline float sn_columns_f32(int64_t columns) { return columns ? (float)columns : 1.0f; }

static inline int64_t sn_chunk_rows(int64_t rows) {
    int64_t each = sn_tasks(rows, SN_CHUNKS_MOST);
    return each > SN_CHUNK_ROWS ? each : SN_CHUNK_ROWS;
}
static inline int64_t sn_chunks(int64_t rows) { return sn_tasks(rows, sn_chunk_rows(rows)); }

typedef struct sn_chunk_sum {
    const float *chunks; /* [n, columns] */
    int64_t n, columns;
    float *sum; /* [columns] */
} sn_chunk_sum;

static inline void sn_add_chunks_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_chunk_sum *s = context;
    const int64_t first = task * SN_PIECE, n = sn_min_i64(SN_PIECE, s->columns - first);
    float *to = s->sum + first;
    memset(to, 0, (size_t)n * sizeof(float));
    for (int64_t chunk = 0; chunk < s->n; chunk++) {
        const float *from = s->chunks + chunk * s->columns + first;
        SN_EACH(i, n, to[i] += from[i];);
    }
}

/* sum = chunks added in index order. */
static inline void sn_add_chunks(sn_team *team, const float *chunks, int64_t n, int64_t columns, float *sum) {
    sn_chunk_sum s = {.chunks = chunks, .n = n, .columns = columns, .sum = sum};
    sn_team_run(team, sn_tasks(columns, SN_PIECE), sn_add_chunks_task, &s);
}

#endif
