#include "support/ring_case.h"

#include <math.h>
#include <string.h>

#include "ops/ring_attention/ring_attention.h"

extern const sn_op sn_op_ring_attention;

int64_t ring_token(const ring_case *a, int rank, int64_t i) {
    int64_t run = a->n / (2 * a->ranks);
    return i < run ? rank * run + i : (2 * a->ranks - 1 - rank) * run + i - run;
}

static sn_shape shard_of(const ring_case *a, const sn_tensor *x) {
    sn_shape s = x->shape;
    s.d[0] = a->n / a->ranks;
    return s;
}

static size_t row_bytes(const sn_tensor *x) { return sn_tensor_bytes(x) / (size_t)x->shape.d[0]; }

sn_tensor ring_rows(const ring_case *a, const sn_tensor *x, int rank) {
    sn_tensor y = case_tensor(x->dtype, shard_of(a, x));
    size_t row = row_bytes(x);
    for (int64_t i = 0; i < y.shape.d[0]; i++)
        memcpy((char *)y.data + (size_t)i * row, (const char *)x->data + (size_t)ring_token(a, rank, i) * row, row);
    return y;
}

void ring_put(const ring_case *a, const sn_tensor *from, int rank, sn_tensor *to) {
    size_t row = row_bytes(from);
    for (int64_t i = 0; i < from->shape.d[0]; i++)
        memcpy((char *)to->data + (size_t)ring_token(a, rank, i) * row, (const char *)from->data + (size_t)i * row, row);
}

sn_tensor ring_places(int64_t n) {
    sn_tensor t = case_tensor(SN_I32, sn_shape_of(n));
    for (int64_t i = 0; i < n; i++) ((int32_t *)t.data)[i] = (int32_t)i;
    return t;
}

void ring_forward(const ring_case *a, const sn_kernel *kernel, const sn_tensor *qkv, const sn_tensor *seq_start, int threads, bool in_place,
                  sn_tensor *o, sn_tensor *lse) {
    sn_tensor places = ring_places(a->n);
    *o = case_tensor(SN_F32, sn_shape_of(a->n, a->heads * a->d));
    *lse = case_tensor(SN_F32, sn_shape_of(a->n, a->heads));
    for (int rank = 0; rank < a->ranks; rank++) {
        sn_call c = {.attrs = {.i = {[SN_RING_ATTENTION_HEAD_DIM] = a->d, [SN_RING_ATTENTION_WINDOW] = a->window},
                               .f = {[SN_RING_ATTENTION_SCALE] = 1 / sqrt((double)a->d)}}};
        c.in[0] = ring_rows(a, &qkv[0], rank);
        c.in[3] = ring_rows(a, &places, rank);
        c.in[5] = ring_rows(a, seq_start, rank);
        for (int step = 0; step < a->ranks; step++) {
            int from = (rank - step + a->ranks) % a->ranks;
            for (int i = 1; i < 3; i++) c.in[i] = ring_rows(a, &qkv[i], from);
            c.in[4] = ring_rows(a, &places, from);
            c.n_in = step ? 8 : 6;
            if (step) c.in[6] = c.out[0], c.in[7] = c.out[1];
            if (step && in_place) case_run_again(kernel, &c, threads);
            else case_run(&sn_op_ring_attention, kernel, &c, threads);
        }
        ring_put(a, &c.out[0], rank, o);
        ring_put(a, &c.out[1], rank, lse);
    }
}
