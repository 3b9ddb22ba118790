#include "ops/ring_attention/ring_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/ring_case.h"

extern const sn_op sn_op_ring_attention;

static const ring_case cases[] = {
    {2, 1, 1, 64, 0, {0}, 1, 1, SN_F32},
    {8, 2, 1, 16, 0, {0}, 1, 4, SN_F32}, /* runs of one token */
    {280, 3, 1, 64, 0, {0}, 1, 2, SN_F32},
    {408, 4, 2, 64, 0, {0}, 1, 3, SN_F32},
    {408, 4, 2, 128, 0, {0, 1, 2, 160, 407}, 5, 3, SN_F32},
    {600, 6, 2, 32, 40, {0, 61}, 2, 2, SN_F32},
    {600, 6, 2, 32, 333, {0, 250}, 2, 4, SN_F32},
    {560, 1, 1, 16, 1, {0, 5}, 2, 4, SN_F32},
    {1100, 2, 1, 80, 0, {0, 64, 1000}, 3, 2, SN_F32}, /* more keys than one chunk */
    {80, 2, 2, 5, 0, {0, 7}, 2, 4, SN_F32},
    {24, 200, 1, 8, 0, {0}, 1, 2, SN_F32},
    {260, 3, 1, 64, 0, {0, 50}, 2, 2, SN_BF16},
    {260, 3, 1, 72, 33, {0, 50}, 2, 2, SN_F16},
};
enum { CASES = sizeof cases / sizeof *cases };

static void inputs(const ring_case *a, sn_tensor qkv[3], sn_tensor *seq_start) {
    for (int i = 0; i < 3; i++) {
        qkv[i] = case_tensor(a->form, sn_shape_of(a->n, (i ? a->kv_heads : a->heads) * a->d));
        case_fill(&qkv[i], 20 + (uint32_t)i, i == 2 ? 1 : 2);
    }
    *seq_start = case_seq_start(a->n, a->starts, a->n_starts);
}

/* However many ranks the sequence is cut for, the result is attention's. */
static void the_ring_is_attention(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_ring_attention, kernels, 8);
    assert_true(n_kernels >= 1);
    for (int i = 0; i < CASES; i++) {
        const ring_case *a = &cases[i];
        sn_tensor qkv[3], start, o, lse;
        inputs(a, qkv, &start);
        size_t many = (size_t)(a->n * a->heads * a->d), rows = (size_t)(a->n * a->heads);
        double *want = malloc((many + rows) * sizeof *want);
        assert_non_null(want);
        case_attention ref = {a->n,        a->heads, a->kv_heads, a->d,    a->window, 1 / sqrt((double)a->d),
                              start.data,  &qkv[0],  &qkv[1],     &qkv[2], NULL,      want,
                              want + many, NULL,     NULL,        NULL};
        case_attention_f64(&ref);
        for (int k = 0; k < n_kernels; k++) {
            ring_forward(a, kernels[k], qkv, &start, 1 + k % 2, k % 2, &o, &lse);
            double e = case_error(&o, want), f = case_error(&lse, want + many);
            if (e > 3e-6 || f > 3e-6) fail_msg("case %d, %s: error %g of o, %g of lse", i, kernels[k]->name, e, f);
        }
        free(want);
        case_tensors_free();
    }
}

/* Queries that see none of the visiting keys keep what they have, and begin with nothing. */
static void unseen_keys_change_nothing(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_ring_attention, kernels, 8);
    const ring_case a = {64, 2, 1, 16, 0, {0}, 1, 1, SN_F32};
    for (int k = 0; k < n_kernels; k++) {
        sn_tensor qkv[3], start;
        inputs(&a, qkv, &start);
        sn_call c = {.n_in = 6, .attrs = {.i = {16, 0}, .f = {0.25}}};
        for (int i = 0; i < 3; i++) c.in[i] = qkv[i];
        c.in[3] = ring_places(64);
        c.in[4] = ring_places(64);
        c.in[5] = start;
        for (int i = 0; i < 64; i++) ((int32_t *)c.in[4].data)[i] += 64;
        case_run(&sn_op_ring_attention, kernels[k], &c, 2);
        for (int64_t i = 0; i < sn_elements(&c.out[0]); i++) assert_true(case_at(&c.out[0], i) == 0);
        for (int64_t i = 0; i < sn_elements(&c.out[1]); i++) assert_true(case_at(&c.out[1], i) == -INFINITY);
        c.n_in = 8;
        c.in[6] = case_tensor(SN_F32, c.out[0].shape);
        c.in[7] = case_tensor(SN_F32, c.out[1].shape);
        case_fill(&c.in[6], 3, 1);
        case_fill(&c.in[7], 4, 9);
        case_run(&sn_op_ring_attention, kernels[k], &c, 2);
        for (int o = 0; o < 2; o++)
            for (int64_t i = 0; i < sn_elements(&c.out[o]); i++) assert_true(fabs(case_at(&c.out[o], i) - case_at(&c.in[6 + o], i)) < 1e-6);
        case_tensors_free();
    }
}

static void same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_ring_attention, kernels, 8);
    const ring_case *a = &cases[4];
    sn_tensor qkv[3], start, o[2], lse[2];
    inputs(a, qkv, &start);
    for (int k = 0; k < n_kernels; k++) {
        ring_forward(a, kernels[k], qkv, &start, 1, false, &o[0], &lse[0]);
        for (int threads = 2; threads <= 4; threads++) {
            ring_forward(a, kernels[k], qkv, &start, threads, true, &o[1], &lse[1]); /* nor where the state lies */
            assert_memory_equal(o[0].data, o[1].data, sn_tensor_bytes(&o[0]));
            assert_memory_equal(lse[0].data, lse[1].data, sn_tensor_bytes(&lse[0]));
        }
    }
    case_tensors_free();
}

static void memory_is_constant(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_ring_attention, kernels, 8);
    sn_call c = {.n_in = 6, .attrs = {.i = {64, 0}, .f = {0.125}}};
    for (int k = 0; k < n_kernels; k++) {
        size_t bytes[2];
        for (int i = 0; i < 2; i++) {
            c.in[0] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(65536 << i, 3 * 64)};
            c.in[1] = c.in[2] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(65536 << i, 64)};
            bytes[i] = kernels[k]->scratch(&c, 2);
        }
        assert_true(bytes[0] == bytes[1]);
    }
}

static void refused(sn_call c, const char *words) {
    c.n_out = 2;
    assert_int_equal(sn_op_ring_attention.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call good = {.n_in = 6, .attrs = {.i = {64, 0}, .f = {0.125}}}, c;
    good.in[0] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(20, 3 * 64)};
    good.in[1] = good.in[2] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(30, 64)};
    good.in[3] = good.in[5] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(20)};
    good.in[4] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(30)};
    assert_ok(sn_op_ring_attention.shape(&(sn_call){
        .n_in = 6, .n_out = 2, .in = {good.in[0], good.in[1], good.in[2], good.in[3], good.in[4], good.in[5]}, .attrs = good.attrs}));
    c = good, c.attrs.i[0] = 0;
    refused(c, "wanted head_dim of at least 1");
    c = good, c.attrs.i[1] = -1;
    refused(c, "wanted a window of at least 0");
    c = good, c.attrs.f[0] = 0;
    refused(c, "wanted a scale above 0");
    c = good, c.in[0].dtype = SN_I32;
    refused(c, "q must be f32, bf16 or f16, found i32");
    c = good, c.in[1].shape.d[1] = 65;
    refused(c, "wanted k [T, heads*64], found [30,65]");
    c = good, c.in[2].shape.d[0] = 20;
    refused(c, "v must be [30,64], found [20,64]");
    c = good, c.in[0].shape.d[1] = 64, c.in[1].shape.d[1] = c.in[2].shape.d[1] = 128;
    refused(c, "wanted a multiple of 2 key/value heads");
    c = good, c.in[4].shape.d[0] = 20;
    refused(c, "key_index must be [30], found [20]");
    c = good, c.in[5].dtype = SN_F32;
    refused(c, "seq_start must be i32");
    c = good, c.n_in = 7, c.in[6] = good.in[0];
    refused(c, "lse is missing");
    c.n_in = 8, c.in[7] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(20, 3)}, c.in[6].dtype = SN_BF16;
    refused(c, "o must be f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ring_is_attention),
        cmocka_unit_test(unseen_keys_change_nothing),
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(memory_is_constant),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
