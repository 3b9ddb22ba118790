#include "support/support.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/team.h"

static void philox_known_answers(void **state) { /* test vectors of the Random123 distribution */
    (void)state;
    sn_rng4 r = sn_philox(0, 0, 0, 0, 0, 0);
    assert_int_equal(r.v[0], 0x6627e8d5);
    r = sn_philox(0xa4093822, 0x299f31d0, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
    assert_int_equal(r.v[0], 0xd16cfe09);
    assert_int_equal(r.v[1], 0x94fdcceb);
    assert_int_equal(r.v[2], 0x5001e420);
    assert_int_equal(r.v[3], 0x24126ea1);
}

static void hashes(void **state) {
    (void)state;
    char hex[65];
    sn_sha256 h;
    sn_sha256_start(&h);
    sn_sha256_add(&h, "abc", 3);
    sn_sha256_end(&h, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(sn_crc32c(0, "123456789", 9), 0xe3069283);
    for (size_t n = 0; n <= 9; n++)
        assert_int_equal(sn_crc32c_join(sn_crc32c(0, "123456789", n), sn_crc32c(0, &"123456789"[n], 9 - n), 9 - n), 0xe3069283);
    static const char zeros[100003];
    assert_int_equal(sn_crc32c_join(sn_crc32c(0, "abc", 3), sn_crc32c(0, zeros, sizeof zeros), sizeof zeros),
                     sn_crc32c(sn_crc32c(0, "abc", 3), zeros, sizeof zeros));
}

static void checked_sizes(void **state) {
    (void)state;
    size_t n;
    int64_t m;
    assert_false(sn_mul(SIZE_MAX, 2, &n));
    assert_false(sn_add(SIZE_MAX, 1, &n));
    assert_false(sn_mul_i64(INT64_C(1) << 62, 4, &m));
    assert_true(sn_mul(3, 4, &n));
    assert_int_equal(n, 12);
}

typedef struct tally {
    atomic_int seen[1000];
} tally;
static void count_task(void *context, int64_t task, int member) {
    (void)member;
    atomic_fetch_add(&((tally *)context)->seen[task], 1);
}
static void team_runs_each_task_once(void **state) {
    (void)state;
    static tally t;
    sn_team *team;
    assert_ok(sn_team_open(3, NULL, &team));
    for (int round = 1; round <= 200; round++) {
        sn_team_run(team, 1000, count_task, &t);
        for (int i = 0; i < 1000; i++) assert_int_equal(atomic_load(&t.seen[i]), round);
    }
    sn_team_close(team);
}

/* Calls of changing length one after the other: a member that is late for one must never run a task of the next. */
static void ordered_task(void *context, int64_t task, int member) {
    (void)member;
    int *round = context;
    atomic_fetch_add(&((atomic_int *)(void *)(round + 1))[task], 1);
}
static void late_members_take_nothing(void **state) {
    (void)state;
    static struct {
        int round;
        atomic_int seen[64];
    } calls[2];
    sn_team *team;
    assert_ok(sn_team_open(4, NULL, &team));
    for (int i = 0; i < 200000; i++) {
        int n = 2 + (i * 7) % 60;
        memset(calls[i % 2].seen, 0, sizeof calls[0].seen);
        sn_team_run(team, n, ordered_task, &calls[i % 2]);
        for (int k = 0; k < 64; k++)
            if (atomic_load(&calls[i % 2].seen[k]) != (k < n))
                fail_msg("call %d of %d tasks: task %d ran %d times", i, n, k, atomic_load(&calls[i % 2].seen[k]));
    }
    sn_team_close(team);
}

static void file_replaced_whole(void **state) {
    (void)state;
    const char *dir = test_dir("file");
    char *path = sn_path_join(dir, "a/b");
    char *folder = sn_path_join(dir, "a");
    assert_ok(sn_make_dirs(folder));
    assert_ok(sn_file_replace(path, "one", 3));
    assert_ok(sn_file_replace(path, "two", 3));
    char *data;
    size_t n;
    assert_ok(sn_file_read_all(path, 100, &data, &n));
    assert_int_equal(n, 3);
    assert_string_equal(data, "two");
    sn_free(data);
    assert_int_equal(sn_file_read_all(path, 2, &data, &n), SN_ERR_FORMAT);
    assert_ok(sn_remove_tree(dir));
    assert_false(sn_path_exists(dir));
    sn_free(path);
    sn_free(folder);
}

static void json_strings(void **state) {
    (void)state;
    sn_str s = {0};
    sn_str_json(&s, "a\"\n\x01", 4);
    assert_string_equal(s.data, "\"a\\\"\\n\\u0001\"");
    sn_str_free(&s);
}

static void allocate(void *context, int64_t task, int member) {
    (void)task, (void)member;
    sn_free(sn_alloc(1));
    usleep(1000); /* so that the other member has its turn */
    (void)context;
}

static void forbid_and_run(sn_team *t) {
    sn_alloc_forbid(true);
    sn_team_run(t, 8, allocate, NULL);
}

/* An allocation while a program runs, by its thread or by a member of its team, ends the process. */
static void a_program_allocates_nothing(void **state) {
    (void)state;
    sn_team *teams[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child) {
            struct rlimit none = {0};
            setrlimit(RLIMIT_CORE, &none);
            signal(SIGABRT, SIG_DFL);
            if (!freopen("/dev/null", "w", stderr) || sn_team_open(i + 1, NULL, &teams[i]) != SN_OK) _exit(1);
            forbid_and_run(teams[i]);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    assert_false(sn_alloc_forbid(true));
    assert_true(sn_alloc_forbid(false));
    sn_free(sn_alloc(1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(hashes),
        cmocka_unit_test(checked_sizes),
        cmocka_unit_test(team_runs_each_task_once),
        cmocka_unit_test(late_members_take_nothing),
        cmocka_unit_test(a_program_allocates_nothing),
        cmocka_unit_test(file_replaced_whole),
        cmocka_unit_test(json_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
