#include "ops/rope_table/rope_table.h"

#include <math.h>
#include <string.h>

#include "support/attention_case.h"

extern const sn_op sn_op_rope_table;

static sn_attrs llama3(int64_t dims, double factor) {
    sn_attrs a = {0};
    a.i[SN_ROPE_TABLE_DIMS] = dims;
    a.i[SN_ROPE_TABLE_TYPE] = SN_ROPE_TABLE_LLAMA3;
    a.i[SN_ROPE_TABLE_ORIGINAL_CONTEXT] = 8192;
    a.f[SN_ROPE_TABLE_THETA] = 500000;
    a.f[SN_ROPE_TABLE_FACTOR] = factor;
    a.f[SN_ROPE_TABLE_LOW_FREQ_FACTOR] = 1;
    a.f[SN_ROPE_TABLE_HIGH_FREQ_FACTOR] = 4;
    return a;
}

/* By what each pair's frequency is divided, as known from Llama 3.1 and 3.2. */
static void llama3_factors(void **state) {
    (void)state;
    static const struct {
        int64_t dims;
        double factor;
        int first, n;
        double divided[8];
    } models[] = {
        {64, 32, 15, 3, {1.651329, 3.292262, 9.666729}},
        {128, 8, 29, 6, {1.207484, 1.553415, 2.026313, 2.694530, 3.684253, 5.257327}},
    };
    for (int m = 0; m < 2; m++) {
        sn_attrs scaled = llama3(models[m].dims, models[m].factor), plain = scaled;
        plain.i[SN_ROPE_TABLE_TYPE] = SN_ROPE_TABLE_DEFAULT;
        for (int i = 0; i < models[m].dims / 2; i++) {
            double ratio = (double)sn_rope_inverse_frequency(&plain, i) / (double)sn_rope_inverse_frequency(&scaled, i);
            int in = i - models[m].first;
            double want = in < 0 ? 1 : in < models[m].n ? models[m].divided[in] : models[m].factor;
            if (fabs(ratio / want - 1) > 1e-6) fail_msg("model %d, pair %d: divided by %.7f, wanted %.7f", m, i, ratio, want);
        }
    }
}

static void angles(void **state) {
    (void)state;
    enum { T = 130 };
    sn_call c = {.n_in = 1, .attrs = llama3(64, 32)};
    c.in[0] = case_tensor(SN_I32, sn_shape_of(T));
    for (int i = 0; i < T; i++) ((int32_t *)c.in[0].data)[i] = i * i * 7;
    for (int threads = 1; threads <= 3; threads += 2) {
        case_run(&sn_op_rope_table, &sn_rope_table_cpu[0], &c, threads);
        const float *table = c.out[0].data;
        for (int t = 0; t < T; t++)
            for (int i = 0; i < 32; i++) {
                float angle = (float)(t * t * 7) * sn_rope_inverse_frequency(&c.attrs, i);
                assert_true(table[t * 64 + i] == (float)cos((double)angle));
                assert_true(table[t * 64 + 32 + i] == (float)sin((double)angle));
            }
        assert_true(table[0] == 1 && table[32] == 0);
    }
    case_tensors_free();
}

static void linear_divides_every_frequency(void **state) {
    (void)state;
    sn_attrs a = {.i = {32, SN_ROPE_TABLE_DEFAULT}, .f = {10000, 4}}, b = a;
    b.i[SN_ROPE_TABLE_TYPE] = SN_ROPE_TABLE_LINEAR;
    for (int i = 0; i < 16; i++) assert_true(sn_rope_inverse_frequency(&b, i) == sn_rope_inverse_frequency(&a, i) / 4);
}

static void refused(sn_call c, sn_status code, const char *words) {
    c.n_out = 1;
    assert_int_equal(sn_op_rope_table.shape(&c), code);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call good = {.n_in = 1, .attrs = llama3(64, 32)}, c;
    good.in[0] = case_tensor(SN_I32, sn_shape_of(3));
    c = good, c.attrs.i[SN_ROPE_TABLE_DIMS] = 63;
    refused(c, SN_ERR_SHAPE, "found 63");
    c = good, c.attrs.i[SN_ROPE_TABLE_TYPE] = 3;
    refused(c, SN_ERR_UNSUPPORTED, "found 3");
    c = good, c.attrs.f[SN_ROPE_TABLE_FACTOR] = 0;
    refused(c, SN_ERR_SHAPE, "factor above 0, found 0");
    c = good, c.attrs.f[SN_ROPE_TABLE_HIGH_FREQ_FACTOR] = 1;
    refused(c, SN_ERR_SHAPE, "found 1 and 1");
    c = good, c.attrs.i[SN_ROPE_TABLE_ORIGINAL_CONTEXT] = 0;
    refused(c, SN_ERR_SHAPE, "original_context");
    c = good, c.attrs.f[SN_ROPE_TABLE_THETA] = 0;
    refused(c, SN_ERR_SHAPE, "theta above 0");
    c = good, c.in[0].dtype = SN_I64;
    refused(c, SN_ERR_SHAPE, "found i64 [3]");
    case_tensors_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama3_factors),
        cmocka_unit_test(angles),
        cmocka_unit_test(linear_divides_every_frequency),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
