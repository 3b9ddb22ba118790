#include "support/support.h"

#include "base/bytes.h"

static void sizes_are_read(void **state) {
    (void)state;
    const struct {
        const char *text;
        uint64_t want;
    } good[] = {{"0", 0},
                {"512", 512},
                {"8GiB", UINT64_C(8) << 30},
                {"8 gib", UINT64_C(8) << 30},
                {"4G", UINT64_C(4) << 30},
                {"1.5GB", 1500000000},
                {"500MB", 500000000},
                {"16KiB", 16384},
                {"3kb", 3000},
                {" 2TiB ", UINT64_C(2) << 40},
                {"1TB", UINT64_C(1000000000000)},
                {"0.5MiB", 524288},
                {".25KiB", 256},
                {"7.B", 7},
                {"18446744073709551615", UINT64_MAX}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t v;
        if (!sn_bytes_parse(good[i].text, &v) || v != good[i].want) fail_msg("'%s'", good[i].text);
    }
    const char *bad[] = {"",
                         " ",
                         "GiB",
                         "-1",
                         "+1",
                         "8GiBs",
                         "8 G i B",
                         "8Gi",
                         "1e9",
                         "8,5GiB",
                         "0x10",
                         ".",
                         "nan",
                         "18446744073709551616",
                         "16777216TiB",
                         "99999999999GiB",
                         "5 bytes",
                         "5kg"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t v;
        if (sn_bytes_parse(bad[i], &v)) fail_msg("'%s' was taken", bad[i]);
    }
}

static void sizes_are_written(void **state) {
    (void)state;
    char b[24];
    assert_string_equal(sn_bytes_text(0, b), "0 B");
    assert_string_equal(sn_bytes_text(999, b), "999 B");
    assert_string_equal(sn_bytes_text(1000, b), "0.98 KiB");
    assert_string_equal(sn_bytes_text(1536, b), "1.50 KiB");
    assert_string_equal(sn_bytes_text(98362432, b), "93.8 MiB");
    assert_string_equal(sn_bytes_text(UINT64_C(8) << 30, b), "8.00 GiB");
    assert_string_equal(sn_bytes_text(UINT64_C(139) << 30, b), "139 GiB");
    assert_string_equal(sn_bytes_text(UINT64_MAX, b), "16.0 EiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_read), cmocka_unit_test(sizes_are_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
