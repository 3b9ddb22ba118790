/* The disk arena: what is written is read again, whatever is aligned; it starts as zeros, leaves no name, has an end;
 * transfers go on beside one another, and one after the other where io_uring is forbidden. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
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

/* A folder that sn_disk_open has made is gone afterwards, unless it is in use. */
static void the_folder(void **state) {
    (void)state;
    const char *outer = test_dir("disk");
    sn_disk d, other;
    char *folder = sn_path_join(outer, "made"), *file = sn_path_join(folder, "of others");
    assert_ok(sn_disk_open(folder, SIZE, &d));
    assert_ok(sn_disk_open(folder, SIZE, &other));
    sn_disk_close(&other);
    assert_int_equal(entries(outer), 1);
    sn_disk_close(&d);
    assert_int_equal(entries(outer), 0);
    assert_ok(sn_disk_open(folder, SIZE, &d));
    assert_ok(sn_file_replace(file, "x", 1));
    sn_disk_close(&d);
    assert_int_equal(entries(folder), 1);
    sn_free(file);
    sn_free(folder);
    assert_ok(sn_remove_tree(outer));
}

/* Many transfers at once, of every alignment, in two directions; each is found where it was put. Returns what went wrong, 0: nothing. */
static int go_beside_one_another(const char *folder, bool ring_allowed) {
    enum { PIECE = 3 * SN_DISK_ALIGN, PIECES = 2 * SN_DISK_TRANSFERS };
    static _Alignas(SN_DISK_ALIGN) uint8_t out[PIECES][PIECE + SN_DISK_ALIGN], in[PIECES][PIECE + SN_DISK_ALIGN];
    sn_disk d;
    if (sn_disk_open(folder, PIECES * PIECE, &d) != SN_OK) return 1;
    if (!ring_allowed && d.ring) return 2;
    for (int half = 0; half < 2; half++)
        for (unsigned t = 0; t < SN_DISK_TRANSFERS; t++) {
            unsigned k = (unsigned)half * SN_DISK_TRANSFERS + t;
            for (size_t i = 0; i < PIECE; i++) out[k][i + k % 2 * 64] = (uint8_t)(i * 7 + k);
            if (half && sn_disk_finish(&d, t) != SN_OK) return 3;
            if (sn_disk_start(&d, true, (uint64_t)k * PIECE, out[k] + k % 2 * 64, PIECE - k % 3 * 5, t) != SN_OK) return 4;
        }
    for (unsigned t = SN_DISK_TRANSFERS; t-- > 0;)
        if (sn_disk_finish(&d, t) != SN_OK || sn_disk_under_way(&d, t)) return 5;
    for (unsigned k = 0; k < PIECES; k++) {
        if (k >= SN_DISK_TRANSFERS && sn_disk_finish(&d, k % SN_DISK_TRANSFERS) != SN_OK) return 6;
        if (sn_disk_start(&d, false, (uint64_t)k * PIECE, in[k], PIECE - k % 3 * 5, k % SN_DISK_TRANSFERS) != SN_OK) return 7;
    }
    for (unsigned t = 0; t < SN_DISK_TRANSFERS; t++)
        if (sn_disk_finish(&d, t) != SN_OK) return 8;
    for (unsigned k = 0; k < PIECES; k++)
        if (memcmp(in[k], out[k] + k % 2 * 64, PIECE - k % 3 * 5)) return 9;
    if (sn_disk_start(&d, true, PIECES * PIECE, out, SN_DISK_ALIGN, 0) != SN_ERR_INTERNAL) return 10;
    sn_disk_close(&d);
    return 0;
}

static void transfers(void **state) {
    (void)state;
    const char *folder = test_dir("disk");
    assert_int_equal(go_beside_one_another(folder, true), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* As containers do: io_uring_setup is refused. */
static void without_a_ring(void **state) {
    (void)state;
    const char *folder = test_dir("disk");
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
                                       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {.len = 4, .filter = filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(77);
        _exit(go_beside_one_another(folder, false));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts), cmocka_unit_test(the_folder), cmocka_unit_test(transfers),
                                       cmocka_unit_test(without_a_ring), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
