#include "tensor/convert.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/support.h"

static const sn_dtype BLOCK_FORMS[] = {SN_Q4_0, SN_Q4_1, SN_Q5_0, SN_Q5_1, SN_Q8_0, SN_Q2_K, SN_Q3_K, SN_Q4_K, SN_Q5_K, SN_Q6_K};

static void every_f16_pattern(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
        float got = sn_f16_to_f32((uint16_t)h);
        if (exponent == 31 && mantissa) {
            assert_true(isnan(got));
            assert_int_equal(sn_f32_to_f16(got), h | 0x200); /* the payload stays, quiet */
            continue;
        }
        double want = exponent == 31 ? INFINITY : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        assert_true((double)got == (h & 0x8000 ? -want : want));
        assert_int_equal(signbit(got) != 0, h >> 15);
        assert_int_equal(sn_f32_to_f16(got), h);
    }
}

/* Halfway between two neighbours the even one is taken; a hair to either side the nearer one. */
static void f16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float low = sn_f16_to_f32((uint16_t)h), high = h == 0x7bff ? 65536.0f : sn_f16_to_f32((uint16_t)(h + 1));
        float middle = (float)(((double)low + high) / 2);
        assert_int_equal(sn_f32_to_f16(middle), h + (h & 1));
        assert_int_equal(sn_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(sn_f32_to_f16(-nextafterf(middle, 1e9f)), (h + 1) | 0x8000);
    }
    assert_int_equal(sn_f32_to_f16(1e-30f), 0);
    assert_int_equal(sn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(sn_f32_to_f16(3e38f), 0x7c00);
}

static void bf16_rounding(void **state) {
    (void)state;
    assert_int_equal(sn_f32_to_bf16(sn_bits_f32(0x3f808000)), 0x3f80); /* ties to even */
    assert_int_equal(sn_f32_to_bf16(sn_bits_f32(0x3f818000)), 0x3f82);
    assert_int_equal(sn_f32_to_bf16(sn_bits_f32(0x3f808001)), 0x3f81);
    assert_int_equal(sn_f32_to_bf16(sn_bits_f32(0x7f7fffff)), 0x7f80);
    assert_int_equal(sn_f32_to_bf16(sn_bits_f32(0x7f800001)), 0x7fc0);
}

static uint8_t *golden(sn_dtype t, const char *ending, uint32_t *n_blocks, size_t *size) {
    char path[512];
    char *data;
    snprintf(path, sizeof path, "%s/tests/golden/convert/%s.%s", SNUG_SOURCE_DIR, sn_dtype_name(t), ending);
    assert_ok(sn_file_read_all(path, 1 << 20, &data, size));
    memcpy(n_blocks, data, 4);
    return (uint8_t *)data;
}

static void decodes_as_ggml(void **state) {
    (void)state;
    for (size_t f = 0; f < sizeof BLOCK_FORMS / sizeof *BLOCK_FORMS; f++) {
        sn_dtype t = BLOCK_FORMS[f];
        const int block = sn_dtypes[t].block, bytes = sn_dtypes[t].bytes;
        uint32_t n;
        size_t size;
        uint8_t *data = golden(t, "bin", &n, &size);
        assert_int_equal(size, 4 + (size_t)n * (size_t)(bytes + 4 * block));
        float out[24 * 256];
        sn_to_f32(t, data + 4, (int64_t)n * block, out); /* many blocks in one call */
        assert_memory_equal(out, data + 4 + n * (size_t)bytes, (size_t)n * (size_t)block * 4);
        sn_to_f32(t, data + 4 + 2 * bytes, block, out); /* one block */
        assert_memory_equal(out, data + 4 + n * (size_t)bytes + (size_t)block * 8, (size_t)block * 4);
        sn_free(data);
    }
}

static void encodes_as_ggml(void **state) {
    (void)state;
    for (size_t f = 0; f < 5; f++) {
        sn_dtype t = BLOCK_FORMS[f];
        const size_t bytes = (size_t)sn_dtypes[t].bytes;
        uint32_t n;
        size_t size;
        uint8_t *data = golden(t, "enc", &n, &size);
        assert_int_equal(size, 4 + n * (128 + bytes));
        float x[24 * 32];
        memcpy(x, data + 4, n * (size_t)128);
        uint8_t out[24 * 36];
        assert_ok(sn_from_f32(t, x, (int64_t)n * 32, out));
        assert_memory_equal(out, data + 4 + n * (size_t)128, n * bytes);
        sn_free(data);
    }
}

static void q8_1_is_q8_0_with_its_sum(void **state) {
    (void)state;
    float x[64], y[64], z[64];
    test_fill(x, 64, 3, 5);
    uint8_t a[68], b[72];
    assert_ok(sn_from_f32(SN_Q8_0, x, 64, a));
    assert_ok(sn_from_f32(SN_Q8_1, x, 64, b));
    for (int i = 0; i < 2; i++) {
        int sum = 0;
        float largest = 0;
        assert_memory_equal(a + 34 * i, b + 36 * i, 2);
        assert_memory_equal(a + 34 * i + 2, b + 36 * i + 4, 32);
        for (int j = 0; j < 32; j++) {
            sum += (int8_t)b[36 * i + 4 + j];
            largest = fmaxf(largest, fabsf(x[32 * i + j]));
        }
        uint16_t s;
        memcpy(&s, b + 36 * i + 2, 2);
        assert_int_equal(s, sn_f32_to_f16((float)sum * (largest / 127)));
    }
    sn_to_f32(SN_Q8_0, a, 64, y);
    sn_to_f32(SN_Q8_1, b, 64, z);
    assert_memory_equal(y, z, sizeof y);
    for (int j = 0; j < 64; j++) assert_true(fabsf(x[j] - y[j]) < 0.03f);
}

static void q8_k_definition(void **state) {
    (void)state;
    float x[512] = {0}, y[512];
    test_fill(x, 256, 4, 2); /* the second block is zero */
    x[17] = -3;              /* the largest: code -127 of a negative scale... */
    uint8_t q[2 * 292];
    assert_ok(sn_from_f32(SN_Q8_K, x, 512, q));
    float d;
    memcpy(&d, q, 4);
    assert_true(fabsf(d - 3.0f / 127) < 1e-7f);
    assert_int_equal((int8_t)q[4 + 17], -127); /* ...times the inverse -127 / -3 */
    for (int g = 0; g < 16; g++) {
        int16_t sum = 0, stored;
        for (int j = 0; j < 16; j++) sum = (int16_t)(sum + (int8_t)q[4 + g * 16 + j]);
        memcpy(&stored, q + 260 + 2 * g, 2);
        assert_int_equal(stored, sum);
    }
    sn_to_f32(SN_Q8_K, q, 512, y);
    for (int j = 0; j < 256; j++) assert_true(fabsf(x[j] - y[j]) <= 0.5f * d * 1.0001f);
    for (int j = 256; j < 512; j++) assert_true(y[j] == 0);
    /* ties go to the even code: 127 is the largest magnitude, so the scale is 1 */
    for (int j = 0; j < 256; j++) x[j] = 0;
    x[0] = -127, x[1] = 0.5f, x[2] = 1.5f, x[3] = -2.5f, x[4] = -3.5f;
    assert_ok(sn_from_f32(SN_Q8_K, x, 256, q));
    const int8_t want[5] = {-127, 0, 2, -2, -4};
    assert_memory_equal(q + 4, want, 5);
}

static void not_finite_input_stays_in_range(void **state) {
    (void)state;
    float x[256];
    uint8_t q[292 * 8];
    const sn_dtype forms[] = {SN_Q4_0, SN_Q4_1, SN_Q5_0, SN_Q5_1, SN_Q8_0, SN_Q8_1, SN_Q8_K};
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        test_fill(x, 256, 9, 1);
        x[3] = NAN, x[40] = INFINITY, x[41] = -INFINITY, x[70] = 1e-45f;
        assert_ok(sn_from_f32(forms[f], x, 256, q)); /* under UBSan: no conversion overflows */
    }
}

static void refuses_other_forms(void **state) {
    (void)state;
    float x[256] = {0};
    uint8_t q[256];
    assert_int_equal(sn_from_f32(SN_Q4_K, x, 256, q), SN_ERR_UNSUPPORTED);
    assert_non_null(strstr(sn_error_text(), "q4_k"));
    assert_int_equal(sn_from_f32(SN_I32, x, 1, q), SN_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_pattern),   cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounding),       cmocka_unit_test(decodes_as_ggml),
        cmocka_unit_test(encodes_as_ggml),     cmocka_unit_test(q8_1_is_q8_0_with_its_sum),
        cmocka_unit_test(q8_k_definition),     cmocka_unit_test(not_finite_input_stays_in_range),
        cmocka_unit_test(refuses_other_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
