#include "ops/rope/rope.h"

#include <math.h>
#include <string.h>

#include "ops/rope_table/rope_table.h"
#include "support/attention_case.h"

extern const sn_op sn_op_rope, sn_op_rope_table;

static sn_call call_of(sn_dtype form, int64_t n, int64_t heads, int64_t d, int64_t dims, const int32_t *positions, const sn_attrs *rope) {
    sn_call table = {.n_in = 1, .attrs = *rope};
    table.attrs.i[SN_ROPE_TABLE_DIMS] = dims;
    table.in[0] = case_tensor(SN_I32, sn_shape_of(n));
    for (int64_t t = 0; t < n; t++) ((int32_t *)table.in[0].data)[t] = positions ? positions[t] : (int32_t)(t * 13);
    case_run(&sn_op_rope_table, &sn_rope_table_cpu[0], &table, 1);
    sn_call c = {.n_in = 2, .in = {case_tensor(form, sn_shape_of(n, heads * d)), table.out[0]}};
    case_fill(&c.in[0], 5, 4);
    c.attrs.i[SN_ROPE_HEAD_DIM] = d;
    return c;
}

/* The values of transformers' apply_rotary_pos_emb, tests/golden/make_rope.py. */
static void golden(void **state) {
    (void)state;
    enum { N = 7, HEADS = 2 };
    static const int32_t positions[N] = {0, 1, 2, 77, 4095, 8192, 131071};
    static const struct {
        const char *file;
        sn_attrs a;
    } files[] = {
        {"rope/default.f32", {{64}, {10000}}},
        {"rope/linear.f32", {{32, SN_ROPE_TABLE_LINEAR}, {10000, 4}}},
        {"rope/llama3_64.f32", {{64, SN_ROPE_TABLE_LLAMA3, 8192}, {500000, 32, 1, 4}}},
        {"rope/llama3_128.f32", {{128, SN_ROPE_TABLE_LLAMA3, 8192}, {500000, 8, 1, 4}}},
    };
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_rope, kernels, 8);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        int64_t d = files[f].a.i[0];
        const float *want = case_golden(files[f].file, (size_t)(d / 2 + N * HEADS * d));
        for (int64_t i = 0; i < d / 2; i++) {
            float got = sn_rope_inverse_frequency(&files[f].a, i);
            if (fabsf(got / want[i] - 1) > 1.2e-7f)
                fail_msg("%s: inverse frequency %d is %.9g, wanted %.9g", files[f].file, (int)i, got, want[i]);
        }
        sn_call c = call_of(SN_F32, N, HEADS, d, d, positions, &files[f].a);
        for (int64_t i = 0; i < N * HEADS * d; i++) ((float *)c.in[0].data)[i] = (float)sin(1.7 * (double)i);
        for (int k = 0; k < n_kernels; k++) {
            case_run(&sn_op_rope, kernels[k], &c, 1);
            for (int64_t i = 0; i < N * HEADS * d; i++) { /* one unit of a frequency is an angle of position * 6e-8 */
                double limit = 4e-7 + 1.3e-7 * positions[i / (HEADS * d)] * (double)want[i % (d / 2)];
                double e = fabs((double)((float *)c.out[0].data)[i] - want[d / 2 + i]);
                if (e > limit) fail_msg("%s, %s: element %d is off by %g", files[f].file, kernels[k]->name, (int)i, e);
            }
        }
        case_tensors_free();
    }
}

static const struct {
    sn_dtype form;
    int64_t n, heads, d, dims;
} cases[] = {
    {SN_F32, 50, 3, 64, 64},  {SN_F32, 5, 2, 80, 80},  {SN_F32, 20, 2, 64, 32},   {SN_F32, 3, 1, 10, 6},   {SN_F32, 1, 1, 2, 2},
    {SN_BF16, 33, 9, 64, 64}, {SN_F16, 18, 2, 96, 24}, {SN_F16, 18, 2, 128, 128}, {SN_BF16, 7, 1, 12, 10},
};
enum { CASES = sizeof cases / sizeof *cases };
static const sn_attrs plain = {.f = {10000}};

/* All kernels give the same turn by the table, also in place and on several threads. */
static void turns_pairs(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_rope, kernels, 8);
    for (int i = 0; i < CASES; i++) {
        int64_t d = cases[i].d, half = cases[i].dims / 2, cols = cases[i].heads * d;
        sn_call c = call_of(cases[i].form, cases[i].n, cases[i].heads, d, cases[i].dims, NULL, &plain);
        sn_tensor first = {0};
        double unit = cases[i].form == SN_F32 ? 6e-7 : cases[i].form == SN_F16 ? 4e-3 : 3.2e-2;
        for (int k = 0; k < n_kernels; k++) {
            case_run(&sn_op_rope, kernels[k], &c, 3);
            for (int64_t e = 0; e < cases[i].n * cols; e++) {
                int64_t t = e / cols, x = e % d, p = x % half;
                double want = case_at(&c.in[0], e);
                double cosine = (double)((float *)c.in[1].data)[t * 2 * half + p],
                       sine = (double)((float *)c.in[1].data)[t * 2 * half + half + p];
                if (x < half) want = want * cosine - case_at(&c.in[0], e + half) * sine;
                else if (x < 2 * half) want = want * cosine + case_at(&c.in[0], e - half) * sine;
                else assert_true(case_at(&c.out[0], e) == want);
                if (!(fabs(case_at(&c.out[0], e) - want) <= unit))
                    fail_msg("case %d, %s: element %d is %g, wanted %g", i, kernels[k]->name, (int)e, case_at(&c.out[0], e), want);
            }
            if (!k) first = c.out[0];
            assert_memory_equal(first.data, c.out[0].data, sn_tensor_bytes(&first)); /* all kernels: the same bits */
            sn_tensor x = c.in[0], y = c.out[0], copy = case_tensor(x.dtype, x.shape);
            memcpy(copy.data, x.data, sn_tensor_bytes(&x));
            c.in[0] = c.out[0] = copy; /* in place */
            case_run_again(kernels[k], &c, 1);
            assert_memory_equal(copy.data, y.data, sn_tensor_bytes(&y));
            c.in[0] = x;
        }
        case_tensors_free();
    }
}

static void inverse_turns_back(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_rope, kernels, 8);
    sn_call c = call_of(SN_F32, 50, 3, 64, 64, NULL, &plain);
    for (int k = 0; k < n_kernels; k++) {
        sn_call back = c;
        c.attrs.i[SN_ROPE_INVERSE] = 0;
        case_run(&sn_op_rope, kernels[k], &c, 2);
        back.in[0] = c.out[0];
        back.attrs.i[SN_ROPE_INVERSE] = 1;
        case_run(&sn_op_rope, kernels[k], &back, 2);
        assert_true(test_error(back.out[0].data, c.in[0].data, (size_t)sn_elements(&c.in[0])) < 1e-6);
        assert_true(test_error(c.out[0].data, c.in[0].data, (size_t)sn_elements(&c.in[0])) > 0.1);
    }
    case_tensors_free();
}

static void refused(sn_call c, const char *words) {
    c.n_out = 1;
    assert_int_equal(sn_op_rope.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call good = call_of(SN_F32, 5, 2, 64, 64, NULL, &plain), c;
    c = good, c.attrs.i[SN_ROPE_HEAD_DIM] = 100;
    refused(c, "multiple of head_dim 100, found 128");
    c = good, c.attrs.i[SN_ROPE_HEAD_DIM] = 0;
    refused(c, "head_dim 0");
    c = good, c.attrs.i[SN_ROPE_HEAD_DIM] = 32;
    refused(c, "even number up to 32] for x [5,128], found f32 [5,64]");
    c = good, c.in[1].shape.d[0] = 4;
    refused(c, "found f32 [4,64]");
    c = good, c.in[1].shape.d[1] = 63;
    refused(c, "found f32 [5,63]");
    c = good, c.in[1].dtype = SN_F16;
    refused(c, "found f16");
    c = good, c.in[0].dtype = SN_I32;
    refused(c, "found i32");
    case_tensors_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(turns_pairs),
        cmocka_unit_test(inverse_turns_back),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
