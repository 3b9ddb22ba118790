#include "ops/all_reduce/all_reduce.h"

#include "ops/math/rows.h"
#include "ops/reduce_scatter/reduce_scatter.h"
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
        for (int64_t at = 0; at < n; at += SN_PIECE) {
            const int64_t m = sn_min_i64(SN_PIECE, n - at);
            sn_store_f32(SN_F32, sn_load_f32(x->dtype, sn_element(x, at), m, all + at), m, all + at);
        }
        all += n;
    }
}

/* n <= SN_PIECE sums as they are when they have been rounded to this form. */
static const float *rounded_to(sn_dtype form, const float *sum, int64_t n, float *buffer) {
    uint16_t half[SN_PIECE];
    if (form == SN_F32) return sum;
    sn_store_f32(form, sum, n, half);
    return sn_load_f32(form, half, n, buffer);
}

static void unpack(const sn_call *c, const float *all) {
    for (int k = 0; k < c->n_in; k += 2) {
        const sn_tensor *x = &c->in[k], *y = &c->in[k + 1];
        const int64_t n = sn_elements(x);
        const bool adds = c->attrs.i[SN_ALL_REDUCE_ADDS] >> k / 2 & 1;
        float wide[SN_PIECE], buffer[SN_PIECE];
        for (int64_t at = 0; at < n; at += SN_PIECE) {
            const int64_t m = sn_min_i64(SN_PIECE, n - at);
            const float *sum = rounded_to(x->dtype, all + at, m, wide);
            if (adds) {
                const float *before = sn_load_f32(y->dtype, sn_element(y, at), m, buffer);
                float *both = sn_result_f32(y->dtype, sn_element(y, at), buffer);
                SN_EACH(i, m, both[i] = before[i] + sum[i];);
                sn_store_f32(y->dtype, both, m, sn_element(y, at));
            } else sn_store_f32(y->dtype, sum, m, sn_element(y, at));
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
        sn_sum_pieces(&(sn_tensor){.data = sum, .dtype = SN_F32}, 0, share, pieces, ranks);
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
