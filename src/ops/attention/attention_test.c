#include "ops/attention/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_case.h"
#include "tensor/convert.h"

extern const sn_op sn_op_attention;

typedef struct attention_case {
    int64_t n, heads, kv_heads, d, window;
    int32_t starts[8];
    int n_starts;
    sn_dtype q_form, kv_form;
} attention_case;

static const attention_case cases[] = {
    {1, 1, 1, 64, 0, {0}, 1, SN_F32, SN_F32},        {70, 3, 1, 64, 0, {0}, 1, SN_F32, SN_F32},
    {330, 2, 2, 64, 0, {0}, 1, SN_F32, SN_F32},      {300, 4, 2, 128, 0, {0, 1, 2, 90, 299}, 5, SN_F32, SN_F32},
    {150, 8, 1, 32, 40, {0, 61}, 2, SN_F32, SN_F32}, {600, 1, 1, 16, 70, {0, 5}, 2, SN_F32, SN_F32},
    {75, 6, 3, 80, 1, {0, 20}, 2, SN_F32, SN_F32},   {66, 2, 1, 96, 64, {0}, 1, SN_F32, SN_F32},
    {65, 2, 1, 256, 0, {0, 64}, 2, SN_F32, SN_F32},  {40, 2, 2, 5, 0, {0, 7}, 2, SN_F32, SN_F32},
    {20, 200, 1, 8, 0, {0}, 1, SN_F32, SN_F32},      {130, 3, 1, 64, 0, {0, 50}, 2, SN_BF16, SN_BF16},
    {130, 3, 1, 72, 33, {0, 50}, 2, SN_F16, SN_F16}, {70, 4, 2, 64, 0, {0, 3}, 2, SN_F32, SN_BF16},
};
enum { CASES = sizeof cases / sizeof *cases };

static sn_call call_of(const attention_case *a, float scale) {
    sn_call c = {.n_in = 4};
    c.in[0] = case_tensor(a->q_form, sn_shape_of(a->n, a->heads * a->d));
    c.in[1] = case_tensor(a->kv_form, sn_shape_of(a->n, a->kv_heads * a->d));
    c.in[2] = case_tensor(a->kv_form, sn_shape_of(a->n, a->kv_heads * a->d));
    c.in[3] = case_seq_start(a->n, a->starts, a->n_starts);
    for (uint32_t i = 0; i < 3; i++) case_fill(&c.in[i], 10 + i, i == 2 ? 1 : scale);
    c.attrs.i[SN_ATTENTION_HEAD_DIM] = a->d;
    c.attrs.i[SN_ATTENTION_WINDOW] = a->window;
    c.attrs.f[SN_ATTENTION_SCALE] = 1 / sqrt((double)a->d);
    return c;
}

static void against_f64(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    for (int i = 0; i < CASES; i++) {
        const attention_case *a = &cases[i];
        sn_call c = call_of(a, 3);
        double *o = malloc((size_t)(a->n * a->heads * a->d) * sizeof *o), *lse = malloc((size_t)(a->n * a->heads) * sizeof *lse);
        case_attention ref = {.n = a->n, .heads = a->heads, .kv_heads = a->kv_heads, .d = a->d, .window = a->window, .o = o, .lse = lse};
        ref.scale = c.attrs.f[SN_ATTENTION_SCALE], ref.seq_start = c.in[3].data, ref.q = &c.in[0], ref.k = &c.in[1], ref.v = &c.in[2];
        case_attention_f64(&ref);
        double limit = a->q_form == SN_F32 ? 2e-6 : a->q_form == SN_BF16 ? 4e-3 : 5e-4;
        for (int k = 0; k < n_kernels; k++) {
            case_run(&sn_op_attention, kernels[k], &c, 1 + k % 2);
            double e = case_error(&c.out[0], o), e_lse = case_error(&c.out[1], lse);
            if (e > limit || e_lse > 2e-6) fail_msg("case %d, %s: error %g of o, %g of lse", i, kernels[k]->name, e, e_lse);
        }
        free(o);
        free(lse);
        case_tensors_free();
    }
}

/* The values of torch.nn.functional.scaled_dot_product_attention, tests/golden/make_attention.py. */
static void golden(void **state) {
    (void)state;
    static const struct {
        const char *file;
        attention_case a;
    } files[] = {
        {"attention/plain.f32", {11, 4, 4, 16, 0, {0}, 1, SN_F32, SN_F32}},
        {"attention/gqa.f32", {12, 6, 2, 16, 0, {0}, 1, SN_F32, SN_F32}},
        {"attention/window.f32", {13, 4, 1, 16, 4, {0}, 1, SN_F32, SN_F32}},
        {"attention/packed.f32", {14, 4, 2, 16, 0, {0, 1, 2, 7}, 4, SN_F32, SN_F32}},
        {"attention/packed_window.f32", {14, 2, 1, 80, 3, {0, 5, 13}, 3, SN_F32, SN_F32}},
        {"attention/heads64.f32", {9, 3, 1, 64, 0, {0}, 1, SN_F32, SN_F32}},
    };
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const attention_case *a = &files[i].a;
        sn_call c = call_of(a, 1);
        for (int x = 0; x < 3; x++) case_sine(&c.in[x], 1 + x, x == 2 ? 1.0 : 1.5);
        const float *want = case_golden(files[i].file, (size_t)(a->n * 2 * (a->heads + a->kv_heads) * a->d));
        for (int k = 0; k < n_kernels; k++) {
            case_run(&sn_op_attention, kernels[k], &c, 2);
            double e = test_error(c.out[0].data, want, (size_t)sn_elements(&c.out[0]));
            if (e > 1e-6) fail_msg("%s, %s: error %g", files[i].file, kernels[k]->name, e);
        }
        case_tensors_free();
    }
}

static void same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    sn_call c = call_of(&cases[3], 3);
    for (int k = 0; k < n_kernels; k++) {
        case_run(&sn_op_attention, kernels[k], &c, 1);
        sn_tensor o = c.out[0], lse = c.out[1];
        for (int threads = 2; threads <= 5; threads++) {
            case_run(&sn_op_attention, kernels[k], &c, threads);
            assert_memory_equal(o.data, c.out[0].data, sn_tensor_bytes(&o));
            assert_memory_equal(lse.data, c.out[1].data, sn_tensor_bytes(&lse));
        }
    }
    case_tensors_free();
}

/* Sequence B behind A: A's contents, even NaNs, and A's length change no bit of B. */
static void packed_sequences_are_strangers(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    enum { B = 333, D = 64, LENGTHS = 4 };
    static const int32_t before[LENGTHS] = {0, 1, 37, 130};
    for (int k = 0; k < n_kernels; k++) {
        sn_tensor alone = {0}, alone_lse = {0};
        for (int x = 0; x < LENGTHS; x++) {
            attention_case a = {before[x] + B, 3, 1, D, 300, {0, before[x]}, before[x] ? 2 : 1, SN_F32, SN_F32};
            sn_call c = call_of(&a, 3);
            for (uint32_t i = 0; i < 3; i++) {
                int64_t cols = sn_cols(&c.in[i]);
                sn_tensor b = case_tensor(SN_F32, sn_shape_of(B, cols));
                case_fill(&b, 70 + i, 3);
                memcpy((float *)c.in[i].data + before[x] * cols, b.data, sn_tensor_bytes(&b));
                if (x == 2) memset(c.in[i].data, 0xff, (size_t)(before[x] * cols) * sizeof(float));
            }
            case_run(&sn_op_attention, kernels[k], &c, 2);
            if (!x) alone = c.out[0], alone_lse = c.out[1];
            assert_memory_equal(alone.data, (float *)c.out[0].data + before[x] * 3 * D, sn_tensor_bytes(&alone));
            assert_memory_equal(alone_lse.data, (float *)c.out[1].data + before[x] * 3, sn_tensor_bytes(&alone_lse));
        }
        case_tensors_free();
    }
}

/* W = 4: position 10 sees keys 7 .. 10 and no other. Each key's value is a power of two of its own. */
static void window_sees_its_last_keys(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    attention_case a = {11, 1, 1, 16, 4, {0}, 1, SN_F32, SN_F32};
    sn_call c = call_of(&a, 1);
    memset(c.in[0].data, 0, sn_tensor_bytes(&c.in[0]));
    for (int j = 0; j < 11; j++)
        for (int i = 0; i < 16; i++) ((float *)c.in[2].data)[j * 16 + i] = (float)(1 << j);
    for (int k = 0; k < n_kernels; k++) {
        case_run(&sn_op_attention, kernels[k], &c, 1);
        assert_true(((float *)c.out[0].data)[160] == (float)(128 + 256 + 512 + 1024) / 4);
    }
    case_tensors_free();
}

/* Scores of 70,000 do not fit f16: they must stay finite and find the same key as f64. */
static void large_scores_stay_finite(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    attention_case a = {5, 1, 1, 64, 0, {0}, 1, SN_F16, SN_F16};
    sn_call c = call_of(&a, 1);
    static const double size[] = {30, 33.07, 33, -33.07, 20}; /* 64 * 33.07 * 33.07 = 70,000 */
    for (int64_t t = 0; t < 5; t++)
        for (int64_t i = 0; i < 64; i++) {
            float q = 33.07f, k = (float)size[t], v = (float)t;
            for (int x = 0; x < 3; x++)
                assert_ok(sn_from_f32(SN_F16, x == 0 ? &q : x == 1 ? &k : &v, 1, (uint16_t *)c.in[x].data + t * 64 + i));
        }
    c.attrs.f[SN_ATTENTION_SCALE] = 1;
    for (int k = 0; k < n_kernels; k++) {
        case_run(&sn_op_attention, kernels[k], &c, 1);
        static const double want[] = {0, 1, 1, 1, 1};
        for (int64_t t = 0; t < 5; t++) {
            assert_true(case_at(&c.out[0], t * 64) == want[t]);
            assert_true(isfinite(((float *)c.out[1].data)[t]));
        }
    }
    case_tensors_free();
}

/* A NaN in the query must come out as one: it is how a diverged run is noticed. */
static void nan_is_not_hidden(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    attention_case a = {70, 1, 1, 64, 0, {0}, 1, SN_F32, SN_F32};
    sn_call c = call_of(&a, 1);
    ((float *)c.in[0].data)[69 * 64 + 3] = NAN;
    for (int k = 0; k < n_kernels; k++) {
        case_run(&sn_op_attention, kernels[k], &c, 1);
        for (int i = 0; i < 64; i++) assert_true(isnan(((float *)c.out[0].data)[69 * 64 + i]));
        assert_true(isnan(((float *)c.out[1].data)[69]));
        assert_false(isnan(((float *)c.out[0].data)[68 * 64]));
    }
    case_tensors_free();
}

/* Scratch does not grow with the number of tokens. */
static void memory_is_linear(void **state) {
    (void)state;
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_attention, kernels, 8);
    for (int k = 0; k < n_kernels; k++) {
        sn_call c = call_of(&cases[1], 1);
        size_t few = kernels[k]->scratch(&c, 2);
        for (int i = 0; i < 3; i++) c.in[i].shape.d[0] = 1 << 20;
        assert_int_equal(kernels[k]->scratch(&c, 2), few);
    }
    case_tensors_free();
}

static void refused(sn_call c, const char *words) {
    c.n_out = 2;
    assert_int_equal(sn_op_attention.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call good = call_of(&cases[3], 1), c = good;
    c.attrs.i[SN_ATTENTION_HEAD_DIM] = 100;
    refused(c, "heads*100], found f32 [300,512]");
    c.attrs.i[SN_ATTENTION_HEAD_DIM] = 0;
    refused(c, "found 0");
    c = good, c.attrs.i[SN_ATTENTION_WINDOW] = -1;
    refused(c, "found -1");
    c = good, c.attrs.f[SN_ATTENTION_SCALE] = 0;
    refused(c, "scale above 0");
    c = good, c.in[0].shape.d[1] = 384;
    refused(c, "multiple of 2 key/value heads, found 3");
    c = good, c.in[2].shape.d[1] = 128;
    refused(c, "wanted v [300,256]");
    c = good, c.in[1].shape.d[0] = 299;
    refused(c, "wanted k [300,256]");
    c = good, c.in[1].dtype = SN_Q8_0;
    refused(c, "found q8_0");
    c = good, c.in[3].dtype = SN_I64;
    refused(c, "seq_start i32 [300], found i64");
    c = good, c.in[3].shape.d[0] = 3;
    refused(c, "found i32 [3]");
    case_tensors_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_f64),
        cmocka_unit_test(golden),
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(packed_sequences_are_strangers),
        cmocka_unit_test(window_sees_its_last_keys),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(memory_is_linear),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
