#include "ops/attention_grad/attention_grad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention/attention.h"
#include "support/attention_case.h"

extern const sn_op sn_op_attention, sn_op_attention_grad;

typedef struct grad_case {
    int64_t n, heads, kv_heads, d, window;
    int32_t starts[8];
    int n_starts;
    sn_dtype form;
} grad_case;

static const grad_case cases[] = {
    {1, 1, 1, 64, 0, {0}, 1, SN_F32},        {70, 3, 1, 64, 0, {0}, 1, SN_F32},
    {150, 2, 2, 64, 0, {0}, 1, SN_F32},      {140, 4, 2, 128, 0, {0, 1, 2, 60, 139}, 5, SN_F32},
    {150, 8, 1, 32, 40, {0, 61}, 2, SN_F32}, {200, 1, 1, 16, 70, {0, 5}, 2, SN_F32},
    {75, 6, 3, 80, 1, {0, 20}, 2, SN_F32},   {66, 2, 1, 96, 64, {0}, 1, SN_F32},
    {65, 2, 1, 256, 0, {0, 64}, 2, SN_F32},  {40, 2, 2, 5, 0, {0, 7}, 2, SN_F32},
    {12, 200, 1, 8, 0, {0}, 1, SN_F32},      {130, 3, 1, 64, 0, {0, 50}, 2, SN_BF16},
    {130, 3, 1, 72, 33, {0, 50}, 2, SN_F16},
};
enum { CASES = sizeof cases / sizeof *cases };

static void attributes(sn_call *c, const grad_case *a) {
    c->attrs.i[SN_ATTENTION_GRAD_HEAD_DIM] = a->d;
    c->attrs.i[SN_ATTENTION_GRAD_WINDOW] = a->window;
    c->attrs.f[SN_ATTENTION_GRAD_SCALE] = 1 / sqrt((double)a->d);
}

/* The call after a forward pass by the reference kernel; q, k, v and do by `sine` or at random. */
static sn_call call_of(const grad_case *a, bool sine) {
    sn_call forward = {.n_in = 4}, c = {.n_in = 7};
    for (int i = 0; i < 3; i++) {
        forward.in[i] = case_tensor(a->form, sn_shape_of(a->n, (i ? a->kv_heads : a->heads) * a->d));
        if (sine) case_sine(&forward.in[i], 1 + i, i == 2 ? 1.0 : 1.5);
        else case_fill(&forward.in[i], 20 + (uint32_t)i, i == 2 ? 1 : 2);
    }
    forward.in[3] = case_seq_start(a->n, a->starts, a->n_starts);
    attributes(&forward, a);
    case_run(&sn_op_attention, &sn_attention_cpu[0], &forward, 2);
    c.in[0] = case_tensor(a->form, forward.in[0].shape);
    if (sine) case_sine(&c.in[0], 4, 1);
    else case_fill(&c.in[0], 30, 1);
    for (int i = 0; i < 3; i++) c.in[1 + i] = forward.in[i];
    c.in[4] = forward.out[0];
    c.in[5] = forward.out[1];
    c.in[6] = forward.in[3];
    attributes(&c, a);
    return c;
}

static void against_f64(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention_grad, kernels, 8);
    for (int i = 0; i < CASES; i++) {
        const grad_case *a = &cases[i];
        sn_call c = call_of(a, false);
        size_t many = (size_t)(a->n * a->heads * a->d), few = (size_t)(a->n * a->kv_heads * a->d);
        double *sums = malloc((many + 2 * few) * sizeof *sums), *d[3] = {sums, sums + many, sums + many + few};
        assert_non_null(sums);
        case_attention ref = {a->n,     a->heads, a->kv_heads, a->d, a->window, c.attrs.f[0], c.in[6].data, &c.in[1],
                              &c.in[2], &c.in[3], &c.in[0],    NULL, NULL,      d[0],         d[1],         d[2]};
        case_attention_f64(&ref);
        double limit = a->form == SN_F32 ? 4e-6 : a->form == SN_BF16 ? 8e-3 : 1e-3;
        for (int k = 0; k < n_kernels; k++) {
            case_run(&sn_op_attention_grad, kernels[k], &c, 1 + k % 2);
            for (int o = 0; o < 3; o++) {
                double e = case_error(&c.out[o], d[o]);
                if (e > limit) fail_msg("case %d, %s: error %g of d%c", i, kernels[k]->name, e, "qkv"[o]);
            }
        }
        free(sums);
        case_tensors_free();
    }
}

/* The gradients of torch.nn.functional.scaled_dot_product_attention, tests/golden/make_attention.py. */
static void golden(void **state) {
    (void)state;
    static const struct {
        const char *file;
        grad_case a;
    } files[] = {
        {"attention/plain.f32", {11, 4, 4, 16, 0, {0}, 1, SN_F32}},
        {"attention/gqa.f32", {12, 6, 2, 16, 0, {0}, 1, SN_F32}},
        {"attention/window.f32", {13, 4, 1, 16, 4, {0}, 1, SN_F32}},
        {"attention/packed.f32", {14, 4, 2, 16, 0, {0, 1, 2, 7}, 4, SN_F32}},
        {"attention/packed_window.f32", {14, 2, 1, 80, 3, {0, 5, 13}, 3, SN_F32}},
        {"attention/heads64.f32", {9, 3, 1, 64, 0, {0}, 1, SN_F32}},
    };
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention_grad, kernels, 8);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const grad_case *a = &files[i].a;
        sn_call c = call_of(a, true);
        size_t many = (size_t)(a->n * a->heads * a->d), few = (size_t)(a->n * a->kv_heads * a->d);
        const float *want = case_golden(files[i].file, 2 * (many + few));
        const float *d[3] = {want + many, want + 2 * many, want + 2 * many + few};
        for (int k = 0; k < n_kernels; k++) {
            case_run(&sn_op_attention_grad, kernels[k], &c, 2);
            for (int o = 0; o < 3; o++) {
                double e = test_error(c.out[o].data, d[o], (size_t)sn_elements(&c.out[o]));
                if (e > 6e-6) fail_msg("%s, %s: error %g of d%c", files[i].file, kernels[k]->name, e, "qkv"[o]);
            }
        }
        case_tensors_free();
    }
}

static double loss(sn_call *forward, const sn_kernel *kernel, const sn_tensor *dout) {
    case_run_again(kernel, forward, 1);
    double sum = 0;
    for (int64_t i = 0, n = sn_elements(dout); i < n; i++) sum += case_at(&forward->out[0], i) * case_at(dout, i);
    return sum;
}

/* Each kernel's gradient against differences of its own forward pass. */
static void finite_differences(void **state) {
    (void)state;
    const sn_kernel *kernels[8], *forwards[8];
    int n_kernels = case_kernels(&sn_op_attention_grad, kernels, 8);
    assert_int_equal(case_kernels(&sn_op_attention, forwards, 8), n_kernels);
    grad_case a = {9, 4, 2, 16, 5, {0, 3}, 2, SN_F32};
    const double h = 1.0 / 64;
    for (int k = 0; k < n_kernels; k++) {
        sn_call c = call_of(&a, false), forward = {.n_in = 4};
        for (int i = 0; i < 3; i++) forward.in[i] = c.in[1 + i];
        forward.in[3] = c.in[6];
        forward.attrs = c.attrs;
        case_run(&sn_op_attention, forwards[k], &forward, 1);
        c.in[4] = forward.out[0], c.in[5] = forward.out[1];
        case_run(&sn_op_attention_grad, kernels[k], &c, 1);
        forward.out[0] = case_tensor(SN_F32, c.in[4].shape), forward.out[1] = case_tensor(SN_F32, c.in[5].shape);
        for (int i = 0; i < 3; i++)
            for (int64_t x = 0, n = sn_elements(&c.in[1 + i]); x < n; x += 3) {
                float *at = (float *)c.in[1 + i].data + x, was = *at;
                double diff = 0;
                static const double weight[] = {8, -1}; /* fourth order */
                for (int step = 1; step <= 2; step++)
                    for (int sign = -1; sign <= 1; sign += 2) {
                        *at = (float)((double)was + sign * step * h);
                        diff += sign * weight[step - 1] * loss(&forward, forwards[k], &c.in[0]) / (12 * h);
                    }
                *at = was;
                double e = fabs(diff - case_at(&c.out[i], x)) / (1 + fabs(diff));
                if (e > 1e-3)
                    fail_msg("%s: d%c[%lld] is %g, differences say %g", kernels[k]->name, "qkv"[i], (long long)x, case_at(&c.out[i], x),
                             diff);
            }
        case_tensors_free();
    }
}

static void same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention_grad, kernels, 8);
    sn_call c = call_of(&cases[3], false);
    for (int k = 0; k < n_kernels; k++) {
        case_run(&sn_op_attention_grad, kernels[k], &c, 1);
        sn_tensor d[3] = {c.out[0], c.out[1], c.out[2]};
        for (int threads = 2; threads <= 5; threads++) {
            case_run(&sn_op_attention_grad, kernels[k], &c, threads);
            for (int o = 0; o < 3; o++) assert_memory_equal(d[o].data, c.out[o].data, sn_tensor_bytes(&d[o]));
        }
    }
    case_tensors_free();
}

/* Sequence B behind A: neither A's contents, even NaNs, nor its length change a bit of B's gradients. */
static void packed_sequences_are_strangers(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention_grad, kernels, 8);
    enum { B = 140, LENGTHS = 4 };
    static const int32_t before[LENGTHS] = {0, 1, 37, 130};
    for (int k = 0; k < n_kernels; k++) {
        sn_tensor alone[3] = {0};
        for (int x = 0; x < LENGTHS; x++) {
            grad_case a = {before[x] + B, 3, 1, 64, 100, {0, before[x]}, before[x] ? 2 : 1, SN_F32};
            sn_call c = call_of(&a, false);
            for (uint32_t i = 0; i < 6; i++) { /* o and lse need not belong to the rest here */
                int64_t cols = sn_cols(&c.in[i]);
                sn_tensor b = case_tensor(SN_F32, sn_shape_of(B, cols));
                case_fill(&b, 70 + i, 1);
                for (int64_t e = 0; e < B * cols && i == 5; e++) ((float *)b.data)[e] += 4;
                memcpy((float *)c.in[i].data + before[x] * cols, b.data, sn_tensor_bytes(&b));
                if (x == 2) memset(c.in[i].data, 0xff, (size_t)(before[x] * cols) * sizeof(float));
            }
            case_run(&sn_op_attention_grad, kernels[k], &c, 2);
            for (int o = 0; o < 3; o++) {
                if (!x) alone[o] = c.out[o];
                assert_memory_equal(alone[o].data, (float *)c.out[o].data + before[x] * sn_cols(&c.out[o]), sn_tensor_bytes(&alone[o]));
            }
        }
        case_tensors_free();
    }
}

static void memory_is_linear(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention_grad, kernels, 8);
    sn_call c = call_of(&cases[1], false);
    for (int k = 0; k < n_kernels; k++) {
        size_t bytes[3];
        for (int i = 0; i < 3; i++) {
            for (int x = 1; x < 4; x++) c.in[x].shape.d[0] = INT64_C(65536) << i;
            bytes[i] = kernels[k]->scratch(&c, 2);
        }
        assert_true(bytes[2] - bytes[1] == 2 * (bytes[1] - bytes[0]));
        assert_true(bytes[1] - bytes[0] <= 65536 * 3 * sizeof(float));
    }
    case_tensors_free();
}

static void refused(sn_call c, const char *words) {
    c.n_out = 3;
    assert_int_equal(sn_op_attention_grad.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call good = call_of(&cases[1], false), c = good;
    c.in[0].shape.d[1] = 64;
    refused(c, "wanted do f32, bf16 or f16 [70,192], found f32 [70,64]");
    c = good, c.in[4].dtype = SN_I32;
    refused(c, "wanted o f32");
    c = good, c.in[5].shape.d[1] = 1;
    refused(c, "wanted lse f32 [70,3], found f32 [70,1]");
    c = good, c.in[6].shape.d[0] = 1;
    refused(c, "wanted seq_start i32 [70], found i32 [1]");
    c = good, c.in[2].shape.d[1] = 128;
    refused(c, "wanted v [70,128]");
    case_tensors_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_f64),
        cmocka_unit_test(golden),
        cmocka_unit_test(finite_differences),
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(packed_sequences_are_strangers),
        cmocka_unit_test(memory_is_linear),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
