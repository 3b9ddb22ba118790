#include "ops/kv_write/kv_write.h"

#include <string.h>

#include "support/attention_case.h"
#include "tensor/convert.h"

extern const sn_op sn_op_kv_write;

enum { BLOCKS = 5, HEADS = 3, TOKENS = 8, N = 21 };

static sn_call call_of(sn_dtype form, sn_dtype cache_form, int64_t d) {
    sn_call c = {.n_in = 4};
    c.in[0] = case_tensor(cache_form, sn_shape_of(BLOCKS, 2, HEADS, TOKENS, d));
    for (uint32_t i = 1; i < 3; i++) {
        c.in[i] = case_tensor(form, sn_shape_of(N, HEADS * d));
        case_fill(&c.in[i], i, 300);
    }
    c.in[3] = case_tensor(SN_I32, sn_shape_of(N));
    for (int i = 0; i < N; i++) ((int32_t *)c.in[3].data)[i] = (i * 11 + 3) % (BLOCKS * TOKENS);
    ((int32_t *)c.in[3].data)[4] = -1;
    ((int32_t *)c.in[3].data)[5] = BLOCKS * TOKENS; /* outside: must not be written */
    c.attrs.i[SN_KV_WRITE_HEAD_DIM] = d;
    return c;
}

/* Every row lands in its slot, rounded as sn_from_f32 rounds; every other byte stays. */
static void rows_land_in_their_slots(void **state) {
    (void)state;
    static const sn_dtype forms[] = {SN_F32, SN_BF16, SN_F16};
    static const int64_t dims[] = {64, 80, 5};
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_kv_write, kernels, 8);
    for (int i = 0; i < 27 * n_kernels; i++) {
        sn_dtype form = forms[i % 3], to = forms[i / 3 % 3];
        int64_t d = dims[i / 9 % 3];
        sn_call c = call_of(form, to, d);
        size_t bytes = sn_tensor_bytes(&c.in[0]), row = (size_t)d * (size_t)sn_dtypes[to].bytes;
        sn_tensor want = case_tensor(to, c.in[0].shape);
        for (int64_t t = 0; t < N; t++)
            for (int64_t w = 0; w < 2; w++)
                for (int64_t g = 0; g < HEADS; g++) {
                    int32_t slot = ((int32_t *)c.in[3].data)[t];
                    if (slot < 0 || slot >= BLOCKS * TOKENS) continue;
                    float x[80];
                    sn_to_f32(form, (char *)c.in[1 + w].data + (size_t)((t * HEADS + g) * d) * (size_t)sn_dtypes[form].bytes, d, x);
                    size_t at = (size_t)(((slot / TOKENS * 2 + w) * HEADS + g) * TOKENS + slot % TOKENS) * row;
                    assert_ok(sn_from_f32(to, x, d, (char *)want.data + at));
                }
        case_run(&sn_op_kv_write, kernels[i / 27], &c, 1 + i % 2);
        if (memcmp(c.in[0].data, want.data, bytes))
            fail_msg("%s: %s to %s, head dim %d", kernels[i / 27]->name, sn_dtype_name(form), sn_dtype_name(to), (int)d);
        case_tensors_free();
    }
}

/* Values that are hard to round: ties, overflow, infinities, NaNs, numbers below the normal ones. */
static void rounding_is_that_of_convert(void **state) {
    (void)state;
    static const uint32_t bits[16] = {0x3f808000, 0x3f818000, 0x3f807fff, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                                      0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fe000, 0x00000001, 0x80000000, 0x3f801000};
    const sn_kernel *kernels[8];
    int n_kernels = case_kernels(&sn_op_kv_write, kernels, 8);
    for (int k = 0; k < n_kernels; k++)
        for (int f = 0; f < 2; f++) {
            sn_call c = call_of(SN_F32, f ? SN_BF16 : SN_F16, 16);
            for (int64_t i = 0; i < N * HEADS; i++) memcpy((float *)c.in[1].data + i * 16, bits, sizeof bits);
            case_run(&sn_op_kv_write, kernels[k], &c, 1);
            uint16_t want[16], *got = (uint16_t *)c.in[0].data + 3 * 16; /* token 0 goes to slot 3 */
            float x[16];
            memcpy(x, bits, sizeof x);
            assert_ok(sn_from_f32(c.in[0].dtype, x, 16, want));
            for (int i = 0; i < 16; i++)
                if (got[i] != want[i]) fail_msg("%s: %08x became %04x, wanted %04x", kernels[k]->name, bits[i], got[i], want[i]);
            case_tensors_free();
        }
}

static void refused(sn_call c, const char *words) {
    assert_int_equal(sn_op_kv_write.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), words)) fail_msg("'%s' lacks '%s'", sn_error_text(), words);
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call good = call_of(SN_F32, SN_F16, 64), c;
    c = good, c.attrs.i[SN_KV_WRITE_HEAD_DIM] = 32;
    refused(c, "[B,2,G,S,32], found f16 [5,2,3,8,64]");
    c = good, c.in[0].dtype = SN_Q8_0;
    refused(c, "found q8_0");
    c = good, c.in[1].shape.d[1] = 64;
    refused(c, "wanted k f32, bf16 or f16 [21,192], found f32 [21,64]");
    c = good, c.in[2].shape.d[0] = 20;
    refused(c, "wanted v f32");
    c = good, c.in[3].dtype = SN_I64;
    refused(c, "wanted slots i32 [T], found i64 [21]");
    case_tensors_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_land_in_their_slots),
        cmocka_unit_test(rounding_is_that_of_convert),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
