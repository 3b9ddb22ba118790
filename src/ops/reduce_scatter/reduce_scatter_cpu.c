#include "ops/reduce_scatter/reduce_scatter.h"

#include "ops/math/rows.h"
#include "ops/math/shard.h"
#include "program/comm.h"

enum { RANKS_MOST = 1024 };

static void sum_peers(const sn_call *c, const void *const *peers, int ranks, int rank) {
    const sn_tensor *y = &c->out[0];
    const int64_t used = sn_elements(y), first = sn_shard(sn_elements(&c->in[0]), c->attrs.i[SN_REDUCE_SCATTER_UNIT], ranks) * rank;
    const int64_t width = sn_dtypes[y->dtype].bytes;
    float buffer[SN_PIECE], sum[SN_PIECE];
    for (int64_t at = 0; at < used; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, used - at);
        for (int r = 0; r < ranks; r++) {
            const float *x = sn_load_f32(y->dtype, (const char *)peers[r] + (first + at) * width, n, buffer);
            if (r == 0) memcpy(sum, x, (size_t)n * sizeof(float));
            else SN_EACH(i, n, sum[i] += x[i];);
        }
        sn_store_f32(y->dtype, sum, n, sn_element(y, at));
    }
}

static void reduce_scatter_run(const sn_call *c) {
    const void *peers[RANKS_MOST];
    if (!c->comm || c->comm->size == 1) {
        peers[0] = c->in[0].data;
        sum_peers(c, peers, 1, 0);
        return;
    }
    c->comm->publish(c->comm, c->in[0].data, peers);
    sum_peers(c, peers, c->comm->size, c->comm->rank);
    c->comm->done(c->comm);
}

static bool reduce_scatter_takes(const sn_call *c) { return c->attrs.i[SN_REDUCE_SCATTER_RANKS] <= RANKS_MOST; }

const sn_kernel sn_reduce_scatter_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .needs = SN_CPU_REFERENCE, .takes = reduce_scatter_takes, .run = reduce_scatter_run},
    {.name = NULL}};
