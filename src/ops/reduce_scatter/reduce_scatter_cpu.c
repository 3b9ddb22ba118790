#include "ops/reduce_scatter/reduce_scatter.h"

#include "ops/math/rows.h"
#include "ops/math/shard.h"
#include "program/comm.h"

/* Where peers' bytes are copied here, a shard is summed in steps, so that their room stays small. */
enum { ROOM_BYTES = 4 << 20, LEAST_BYTES = 64 << 10 };

/* Elements of a shard that are summed at once; the same on every rank. */
static int64_t step_of(const sn_call *c, int64_t shard) {
    const int64_t *i = c->attrs.i, width = sn_dtypes[c->in[0].dtype].bytes;
    const int64_t bytes = ROOM_BYTES / i[SN_REDUCE_SCATTER_RANKS] > LEAST_BYTES ? ROOM_BYTES / i[SN_REDUCE_SCATTER_RANKS] : LEAST_BYTES;
    return i[SN_REDUCE_SCATTER_COPIES] ? sn_min_i64(shard, bytes / width / SN_PIECE * SN_PIECE) : shard;
}

static int64_t shard_of(const sn_call *c) {
    const int64_t row = c->attrs.i[SN_REDUCE_SCATTER_ROWS] ? sn_row_elements(&c->in[0].shape) : 1;
    return sn_shard(sn_elements(&c->in[0]), c->attrs.i[SN_REDUCE_SCATTER_UNIT] * row, c->attrs.i[SN_REDUCE_SCATTER_RANKS]);
}

static void sum_pieces_f64(double *y, int64_t n, const void *const *pieces, int ranks) {
    for (int64_t i = 0; i < n; i++) {
        double sum = ((const double *)pieces[0])[i];
        for (int r = 1; r < ranks; r++) sum += ((const double *)pieces[r])[i];
        y[i] = sum;
    }
}

void sn_sum_pieces(const sn_tensor *y, int64_t first, int64_t n, const void *const *pieces, int ranks) {
    const int64_t width = sn_dtypes[y->dtype].bytes;
    float buffer[SN_PIECE], sum[SN_PIECE];
    if (y->dtype == SN_F64) {
        sum_pieces_f64((double *)y->data + first, n, pieces, ranks);
        return;
    }
    for (int64_t at = 0; at < n; at += SN_PIECE) {
        const int64_t m = sn_min_i64(SN_PIECE, n - at);
        for (int r = 0; r < ranks; r++) {
            const float *x = sn_load_f32(y->dtype, (const char *)pieces[r] + at * width, m, buffer);
            if (r == 0) memcpy(sum, x, (size_t)m * sizeof(float));
            else SN_EACH(i, m, sum[i] += x[i];);
        }
        sn_store_f32(y->dtype, sum, m, sn_element(y, first + at));
    }
}

static void reduce_scatter_run(const sn_call *c) {
    const sn_tensor *y = &c->out[0];
    const void *pieces[SN_RANKS_MOST] = {c->in[0].data};
    if (!c->comm || c->comm->size == 1) {
        sn_sum_pieces(y, 0, sn_elements(y), pieces, 1);
        return;
    }
    const int ranks = c->comm->size;
    const int64_t n = sn_elements(&c->in[0]), shard = shard_of(c), step = step_of(c, shard), width = sn_dtypes[y->dtype].bytes;
    size_t at[SN_RANKS_MOST], bytes[SN_RANKS_MOST];
    for (int64_t first = 0; first < shard; first += step) {
        int64_t mine = 0;
        for (int r = 0; r < ranks; r++) {
            const int64_t left = sn_shard_used(n, shard, r) - first, m = left < 0 ? 0 : sn_min_i64(left, sn_min_i64(step, shard - first));
            at[r] = m ? (size_t)((shard * r + first) * width) : 0;
            bytes[r] = (size_t)(m * width);
            if (r == c->comm->rank) mine = m;
        }
        c->comm->all_to_all(c->comm, c->in[0].data, at, bytes, c->scratch, pieces);
        sn_sum_pieces(y, first, mine, pieces, ranks);
        c->comm->done(c->comm);
    }
}

static size_t reduce_scatter_room(const sn_call *c, int n_threads) {
    (void)n_threads;
    const int64_t *i = c->attrs.i;
    const int64_t bytes = (i[SN_REDUCE_SCATTER_RANKS] - 1) * step_of(c, shard_of(c)) * sn_dtypes[c->in[0].dtype].bytes;
    return i[SN_REDUCE_SCATTER_COPIES] ? (size_t)bytes : 0;
}

static bool reduce_scatter_takes(const sn_call *c) { return c->attrs.i[SN_REDUCE_SCATTER_RANKS] <= SN_RANKS_MOST; }

const sn_kernel sn_reduce_scatter_cpu[] = {{.name = "reference",
                                            .device = SN_DEVICE_CPU,
                                            .needs = SN_CPU_REFERENCE,
                                            .takes = reduce_scatter_takes,
                                            .scratch = reduce_scatter_room,
                                            .run = reduce_scatter_run},
                                           {.name = NULL}};
