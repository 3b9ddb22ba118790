/* The disk arena: what is written is read again, whatever is aligned; it starts as zeros, leaves no name, has an end. */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "program/files.h"
#include "support/support.h"

enum { SIZE = 5 * SN_DISK_ALIGN + 100 };

static int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static void parts(void **state) {
    (void)state;
    const char *folder = test_dir("disk");
    sn_disk d;
    assert_ok(sn_disk_open(folder, SIZE, &d));
    assert_int_equal(entries(folder), 0);
    static _Alignas(SN_DISK_ALIGN) uint8_t memory[SIZE + SN_DISK_ALIGN], got[SIZE + SN_DISK_ALIGN], want[SIZE];
    memset(got, 1, sizeof got);
    assert_ok(sn_disk_read(&d, 0, got, SIZE));
    assert_memory_equal(got, want, SIZE);
    static const struct {
        size_t offset, bytes, shift;
    } cases[] = {{0, SIZE, 0},
                 {0, SN_DISK_ALIGN, 0},
                 {SN_DISK_ALIGN, 2 * SN_DISK_ALIGN, 64},
                 {SN_DISK_ALIGN, 2 * SN_DISK_ALIGN + 7, 0},
                 {4000, 300, 0},
                 {SIZE - 1, 1, 0},
                 {2 * SN_DISK_ALIGN, 5, 0},
                 {SIZE, 0, 0},
                 {64, SIZE - 64, 64}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        for (size_t i = 0; i < cases[k].bytes; i++) want[cases[k].offset + i] = memory[cases[k].shift + i] = (uint8_t)(i * 31 + k * 7 + 1);
        assert_ok(sn_disk_write(&d, cases[k].offset, memory + cases[k].shift, cases[k].bytes));
        memset(got, 0, sizeof got);
        assert_ok(sn_disk_read(&d, cases[k].offset, got + cases[k].shift, cases[k].bytes));
        assert_memory_equal(got + cases[k].shift, want + cases[k].offset, cases[k].bytes);
        assert_ok(sn_disk_read(&d, 0, got, SIZE));
        assert_memory_equal(got, want, SIZE);
    }
    assert_int_equal(sn_disk_read(&d, SIZE - 1, got, 2), SN_ERR_INTERNAL);
    assert_int_equal(sn_disk_write(&d, UINT64_MAX, got, 2), SN_ERR_INTERNAL);
    sn_disk_close(&d);
    assert_int_equal(rmdir(folder), 0);
}

static void refusals(void **state) {
    (void)state;
    sn_disk d;
    assert_ok(sn_disk_open(NULL, 0, &d));
    sn_disk_close(&d);
    assert_int_equal(sn_disk_open("/proc/none", 1, &d), SN_ERR_FILE);
    assert_non_null(strstr(sn_error_text(), "/proc/none"));
    const char *folder = test_dir("disk");
    assert_int_equal(sn_disk_open(folder, UINT64_C(1) << 60, &d), SN_ERR_FILE);
    assert_non_null(strstr(sn_error_text(), "1152921504606846976 bytes"));
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
