#include "ops/ring_attention_grad/ring_attention_grad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ring_attention/ring_attention.h"
#include "support/ring_case.h"

extern const sn_op sn_op_ring_attention, sn_op_ring_attention_grad;

static const ring_case cases[] = {
    {2, 1, 1, 64, 0, {0}, 1, 1, SN_F32},        {8, 2, 1, 16, 0, {0}, 1, 4, SN_F32},
    {280, 3, 1, 64, 0, {0}, 1, 2, SN_F32},      {276, 4, 2, 128, 0, {0, 1, 2, 160, 275}, 5, 3, SN_F32},
    {320, 6, 2, 32, 40, {0, 61}, 2, 2, SN_F32}, {320, 6, 2, 32, 133, {0, 150}, 2, 4, SN_F32},
    {160, 1, 1, 16, 1, {0, 5}, 2, 4, SN_F32},   {80, 2, 2, 5, 0, {0, 7}, 2, 4, SN_F32},
    {12, 200, 1, 8, 0, {0}, 1, 2, SN_F32},      {260, 3, 1, 64, 0, {0, 50}, 2, 2, SN_BF16},
    {260, 3, 1, 72, 33, {0, 50}, 2, 2, SN_F16},
};
enum { CASES = sizeof cases / sizeof *cases };

/* All of a ring's whole values: q, k, v, do, and o and lse by the reference kernel. */
typedef struct values {
    sn_tensor qkv[3], dout, start, o, lse, d[3];
} values;

static void inputs(const ring_case *a, const sn_kernel *forward, values *x) {
    for (int i = 0; i < 3; i++) {
        x->qkv[i] = case_tensor(a->form, sn_shape_of(a->n, (i ? a->kv_heads : a->heads) * a->d));
        case_fill(&x->qkv[i], 20 + (uint32_t)i, i == 2 ? 1 : 2);
        x->d[i] = case_tensor(SN_F32, x->qkv[i].shape);
    }
    x->dout = case_tensor(a->form, x->qkv[0].shape);
    case_fill(&x->dout, 30, 1);
    x->start = case_seq_start(a->n, a->starts, a->n_starts);
    ring_forward(a, forward, x->qkv, &x->start, 2, false, &x->o, &x->lse);
}

/* The whole backward pass by one kernel: dq stays with its rank, dk and dv go round with their keys. */
static void ring_backward(const ring_case *a, const sn_kernel *kernel, values *x, int threads, bool in_place) {
    sn_tensor places = ring_places(a->n), travelling[16][2], dq[16];
    for (int step = 0; step < a->ranks; step++)
        for (int rank = 0; rank < a->ranks; rank++) {
            int from = (rank - step + a->ranks) % a->ranks;
            sn_call c = {.n_in = step ? 10 : 9, .attrs = {.i = {a->d, a->window, SN_RING_OF_QUERIES}, .f = {1 / sqrt((double)a->d)}}};
            c.in[0] = ring_rows(a, &x->dout, rank);
            c.in[1] = ring_rows(a, &x->qkv[0], rank);
            for (int i = 1; i < 3; i++) c.in[1 + i] = ring_rows(a, &x->qkv[i], from);
            c.in[4] = ring_rows(a, &x->o, rank);
            c.in[5] = ring_rows(a, &x->lse, rank);
            c.in[6] = ring_rows(a, &places, rank);
            c.in[7] = ring_rows(a, &places, from);
            c.in[8] = ring_rows(a, &x->start, rank);
            if (step) c.in[9] = dq[rank];
            if (step && in_place) c.n_out = 3, c.out[0] = c.in[9], case_run_again(kernel, &c, threads);
            else case_run(&sn_op_ring_attention_grad, kernel, &c, threads);
            dq[rank] = c.out[0];
            assert_true(in_place || (c.out[1].shape.rank == 0 && c.out[2].shape.rank == 0));
            c.in[9] = (sn_tensor){0};
            c.attrs.i[SN_RING_ATTENTION_GRAD_OF] = SN_RING_OF_KEYS;
            c.n_in = step ? 12 : 9;
            for (int i = 0; step && i < 2; i++) c.in[10 + i] = travelling[from][i];
            if (step && in_place) c.out[1] = c.in[10], c.out[2] = c.in[11], case_run_again(kernel, &c, threads);
            else case_run(&sn_op_ring_attention_grad, kernel, &c, threads);
            for (int i = 0; i < 2; i++) travelling[from][i] = c.out[1 + i];
        }
    for (int rank = 0; rank < a->ranks; rank++) {
        ring_put(a, &dq[rank], rank, &x->d[0]);
        for (int i = 0; i < 2; i++) ring_put(a, &travelling[rank][i], rank, &x->d[1 + i]);
    }
}

static void the_ring_is_attentions_gradient(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_ring_attention_grad, kernels, 8);
    assert_true(n_kernels >= 1);
    for (int i = 0; i < CASES; i++) {
        const ring_case *a = &cases[i];
        values x;
        inputs(a, &sn_ring_attention_cpu[0], &x);
        size_t many = (size_t)(a->n * a->heads * a->d), few = (size_t)(a->n * a->kv_heads * a->d);
        double *sums = malloc((many + 2 * few) * sizeof *sums), *d[3] = {sums, sums + many, sums + many + few};
        assert_non_null(sums);
        case_attention ref = {a->n,         a->heads,  a->kv_heads, a->d,      a->window, 1 / sqrt((double)a->d),
                              x.start.data, &x.qkv[0], &x.qkv[1],   &x.qkv[2], &x.dout,   NULL,
                              NULL,         d[0],      d[1],        d[2]};
        case_attention_f64(&ref);
        for (int k = 0; k < n_kernels; k++) {
            ring_backward(a, kernels[k], &x, 1 + k % 2, k % 2);
            for (int o = 0; o < 3; o++) {
                double e = case_error(&x.d[o], d[o]);
                if (e > 5e-6) fail_msg("case %d, %s: error %g of d%c", i, kernels[k]->name, e, "qkv"[o]);
            }
        }
        free(sums);
        case_tensors_free();
    }
}

static double loss(const ring_case *a, const sn_kernel *kernel, values *x) {
    sn_tensor o, lse;
    ring_forward(a, kernel, x->qkv, &x->start, 1, false, &o, &lse);
    double sum = 0;
    for (int64_t i = 0, n = sn_elements(&o); i < n; i++) sum += case_at(&o, i) * case_at(&x->dout, i);
    return sum;
}

/* Each kernel's gradient against differences of its own forward pass. */
static void finite_differences(void **state) {
    (void)state;
    const sn_kernel *kernels[8], *forwards[8];
    int n_kernels = case_kernels(&sn_op_ring_attention_grad, kernels, 8);
    assert_int_equal(case_kernels(&sn_op_ring_attention, forwards, 8), n_kernels);
    const ring_case a = {8, 2, 1, 16, 5, {0, 3}, 2, 2, SN_F32};
    static const double weight[] = {8, -1}; /* fourth order */
    const double h = 1.0 / 64;
    for (int k = 0; k < n_kernels; k++)
        for (int i = 0; i < 3; i++)
            for (int64_t e = 0; e < a.n * (i ? a.kv_heads : a.heads) * a.d; e += 37) {
                values x;
                inputs(&a, forwards[k], &x);
                ring_backward(&a, kernels[k], &x, 1, false);
                double diff = 0, got = case_at(&x.d[i], e);
                float *at = (float *)x.qkv[i].data + e, was = *at;
                for (int step = 1; step <= 2; step++)
                    for (int sign = -1; sign <= 1; sign += 2) {
                        *at = (float)((double)was + sign * step * h);
                        diff += sign * weight[step - 1] * loss(&a, forwards[k], &x) / (12 * h);
                    }
                if (fabs(diff - got) / (1 + fabs(diff)) > 1e-3)
                    fail_msg("%s: d%c[%lld] is %g, differences say %g", kernels[k]->name, "qkv"[i], (long long)e, got, diff);
                case_tensors_free();
            }
}

static void same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_ring_attention_grad, kernels, 8);
    const ring_case *a = &cases[3];
    for (int k = 0; k < n_kernels; k++) {
        values x;
        sn_tensor first[3];
        inputs(a, &sn_ring_attention_cpu[0], &x);
        ring_backward(a, kernels[k], &x, 1, false);
        for (int o = 0; o < 3; o++) first[o] = x.d[o], x.d[o] = case_tensor(SN_F32, x.d[o].shape);
        for (int threads = 2; threads <= 3; threads++) {
            ring_backward(a, kernels[k], &x, threads, true);
            for (int o = 0; o < 3; o++) assert_memory_equal(first[o].data, x.d[o].data, sn_tensor_bytes(&first[o]));
        }
        case_tensors_free();
    }
}

static void refused(sn_call c, const char *words) {
    c.n_out = 3;
    assert_int_equal(sn_op_ring_attention_grad.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call good = {.n_in = 9, .attrs = {.i = {64, 0, SN_RING_OF_KEYS}, .f = {0.125}}}, c;
    good.in[0] = good.in[1] = good.in[4] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(20, 3 * 64)};
    good.in[2] = good.in[3] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(30, 64)};
    good.in[5] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(20, 3)};
    good.in[6] = good.in[8] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(20)};
    good.in[7] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(30)};
    c = good, c.n_out = 3;
    assert_ok(sn_op_ring_attention_grad.shape(&c));
    assert_true(c.out[0].shape.rank == 0 && sn_shape_equal(&c.out[1].shape, &good.in[2].shape) && c.out[2].dtype == SN_F32);
    c = good, c.attrs.i[SN_RING_ATTENTION_GRAD_OF] = 2;
    refused(c, "of must be 0 or 1, found 2");
    c = good, c.in[0].shape.d[1] = 64;
    refused(c, "do must be [20,192], found [20,64]");
    c = good, c.in[4].dtype = SN_I32;
    refused(c, "o must be f32, bf16 or f16");
    c = good, c.in[5].shape.d[1] = 1;
    refused(c, "lse must be [20,3], found [20,1]");
    c = good, c.in[8].shape.d[0] = 30;
    refused(c, "seq_start must be [20], found [30]");
    c = good, c.n_in = 10, c.in[9] = good.in[1];
    refused(c, "dq came in and is not wanted");
    c = good, c.n_in = 11, c.in[10] = good.in[2];
    refused(c, "dk and dv come in together");
    c.n_in = 12, c.in[11] = good.in[2], c.in[11].dtype = SN_BF16;
    refused(c, "dv must be f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_is_attentions_gradient),
        cmocka_unit_test(finite_differences),
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
