#include "ops/all_reduce/all_reduce.h"

#include "ops/math/rows.h"
#include "program/comm.h"

/* The summands stand one behind the other in f32, which holds every form exactly; each rank sums an equal share of them. */
static int64_t elements(const sn_call *c) {
    int64_t n = 0;
    for (int k = 0; k < c->n_in; k += 2) n += sn_elements(&c->in[k]);
    return n;
}

static int64_t share_of(const sn_call *c) {
    const int64_t ranks = c->attrs.i[SN_ALL_REDUCE_RANKS];
    return (elements(c) + ranks - 1) / ranks;
}

/* In scratch: all summands of this rank, its share of the sums, and room for others' summands of that. */
static size_t all_reduce_room(const sn_call *c, int n_threads) {
    (void)n_threads;
    return (size_t)(share_of(c) * 2 * c->attrs.i[SN_ALL_REDUCE_RANKS]) * sizeof(float);
}

static void pack(const sn_call *c, float *all) {
    for (int k = 0; k < c->n_in; k += 2) {
        const sn_tensor *x = &c->in[k];
        const int64_t n = sn_elements(x);
        float buffer[SN_PIECE];
        for (int64_t at = 0; at < n; at += SN_PIECE) {
            const int64_t m = sn_min_i64(SN_PIECE, n - at);
            memcpy(all + at, sn_load_f32(x->dtype, sn_element(x, at), m, buffer), (size_t)m * sizeof(float));
        }
        all += n;
    }
}

static void sum_share(float *sum, int64_t n, const void *const *pieces, int ranks) {
    for (int r = 0; r < ranks; r++) {
        const float *x = pieces[r];
        if (r == 0) memcpy(sum, x, (size_t)n * sizeof(float));
        else SN_EACH(i, n, sum[i] += x[i];);
    }
}

static void unpack(const sn_call *c, const float *all) {
    for (int k = 0; k < c->n_in; k += 2) {
        const sn_tensor *x = &c->in[k], *y = &c->in[k + 1];
        const int64_t n = sn_elements(x);
        const bool adds = c->attrs.i[SN_ALL_REDUCE_ADDS] >> k / 2 & 1;
        float sum[SN_PIECE], old[SN_PIECE];
        char form[SN_PIECE * sizeof(float)];
        for (int64_t at = 0; at < n; at += SN_PIECE) {
            const int64_t m = sn_min_i64(SN_PIECE, n - at);
            memcpy(sum, all + at, (size_t)m * sizeof(float));
            sn_store_f32(x->dtype, sum, m, form);
            const float *rounded = sn_load_f32(x->dtype, form, m, sum);
            if (adds) {
                const float *before = sn_load_f32(y->dtype, sn_element(y, at), m, old);
                float both[SN_PIECE];
                SN_EACH(i, m, both[i] = before[i] + rounded[i];);
                sn_store_f32(y->dtype, both, m, sn_element(y, at));
            } else sn_store_f32(y->dtype, rounded, m, sn_element(y, at));
        }
        all += n;
    }
}

static void all_reduce_run(const sn_call *c) {
    float *all = c->scratch;
    pack(c, all);
    const int ranks = c->comm ? c->comm->size : 1;
    if (ranks > 1) {
        const int64_t share = share_of(c);
        float *sum = all + share * ranks;
        size_t at[SN_RANKS_MOST + 1], bytes[SN_RANKS_MOST];
        const void *pieces[SN_RANKS_MOST];
        memset(all + elements(c), 0, (size_t)(share * ranks - elements(c)) * sizeof(float));
        for (int r = 0; r <= ranks; r++) at[r] = (size_t)(share * r) * sizeof(float);
        for (int r = 0; r < ranks; r++) bytes[r] = (size_t)share * sizeof(float);
        c->comm->all_to_all(c->comm, all, at, bytes, sum + share, pieces);
        sum_share(sum, share, pieces, ranks);
        c->comm->done(c->comm);
        c->comm->all_gather(c->comm, sum, at, all);
    }
    unpack(c, all);
}

static bool all_reduce_takes(const sn_call *c) { return c->attrs.i[SN_ALL_REDUCE_RANKS] <= SN_RANKS_MOST; }

const sn_kernel sn_all_reduce_cpu[] = {{.name = "reference",
                                        .device = SN_DEVICE_CPU,
                                        .needs = SN_CPU_REFERENCE,
                                        .takes = all_reduce_takes,
                                        .scratch = all_reduce_room,
                                        .run = all_reduce_run},
                                       {.name = NULL}};
