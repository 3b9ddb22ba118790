#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/system.h"

static char *root;

static void put(const char *folder, const char *name, const char *text) {
    char *dir = sn_path_join(root, folder), *path = sn_path_join(dir, name);
    assert_ok(sn_make_dirs(dir));
    assert_ok(sn_file_replace(path, text, strlen(text)));
    sn_free(dir);
    sn_free(path);
}

static int new_root(void **state) {
    (void)state;
    root = sn_strdup(test_dir("system"));
    return root ? 0 : 1;
}
static int drop_root(void **state) {
    (void)state;
    sn_free(root);
    return 0;
}

static void rss_follows_use(void **state) {
    (void)state;
    enum { BYTES = 48 << 20 };
    uint64_t before = sn_rss_bytes();
    assert_true(before > 0 && sn_peak_rss_bytes() + (1 << 20) >= before);
    char *p = sn_alloc(BYTES);
    memset(p, 1, BYTES);
    uint64_t during = sn_rss_bytes();
    assert_true(during >= before + BYTES * 9 / 10);
    sn_free(p);
    /* The kernel keeps the peak in per-processor counters and may show it some hundred KiB too low. */
    assert_true(sn_peak_rss_bytes() + (1 << 20) >= during);
    assert_true(sn_memory_total() >= sn_memory_available() && sn_memory_available() > 0);
    assert_true(sn_memory_free() > 0 && sn_memory_free() <= sn_memory_total());
}

static void version_2_smallest_ancestor(void **state) {
    (void)state;
    put("a/b/c", "memory.max", "max\n");
    put("a/b", "memory.max", "5000000\n");
    put("a/b", "memory.current", "4000000\n");
    put("a/b", "memory.stat", "anon 12\nfile 999\nactive_file 3000000\ninactive_file 1000000\n");
    put("a", "memory.max", "7000000\n");
    put("a", "memory.current", "6500000\n");
    sn_cgroup_memory m = sn_cgroup_memory_at("0::/a/b/c\n", root);
    assert_int_equal(m.limit, 5000000);
    assert_int_equal(m.free, 500000); /* a's: b's is 2000000 */
    m = sn_cgroup_memory_at("0::/a\n", root);
    assert_int_equal(m.limit, 7000000);
    m = sn_cgroup_memory_at("0::/\n", root);
    assert_true(m.limit == UINT64_MAX && m.free == UINT64_MAX);
}

static void version_2_of_a_container(void **state) { /* the group is the mount's root, or is named from outside */
    (void)state;
    put("", "memory.max", "123456\n");
    assert_int_equal(sn_cgroup_memory_at("0::/\n", root).limit, 123456);
    assert_int_equal(sn_cgroup_memory_at("0::/docker/0123456789", root).limit, 123456);
    put("", "memory.current", "200000\n"); /* over its limit: nothing is free, no wrap */
    assert_int_equal(sn_cgroup_memory_at("0::/\n", root).free, 0);
}

static void version_1(void **state) {
    (void)state;
    put("memory/x/y", "memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/x", "memory.limit_in_bytes", "8000\n");
    put("memory/x", "memory.usage_in_bytes", "3000\n");
    put("memory/x", "memory.stat", "inactive_file 999999\ntotal_inactive_file 1000\n");
    put("memory", "memory.limit_in_bytes", "9223372036854771712\n");
    sn_cgroup_memory m = sn_cgroup_memory_at("12:cpu,cpuacct:/z\n4:hugetlb,memory:/x/y\n0::/q\n", root);
    assert_int_equal(m.limit, 8000);
    assert_int_equal(m.free, 6000);
    assert_true(sn_cgroup_memory_at("4:memory:/other\n", root).limit == UINT64_MAX);
}

static void odd_texts(void **state) {
    (void)state;
    put("", "memory.max", "nonsense\n");
    assert_true(sn_cgroup_memory_at("", root).limit == UINT64_MAX);
    assert_true(sn_cgroup_memory_at("::::\n\n7:\nx", root).limit == UINT64_MAX);
    assert_true(sn_cgroup_memory_at("0::/\n", root).limit == UINT64_MAX);
    put("", "memory.max", "99999999999999999999999\n");
    assert_true(sn_cgroup_memory_at("0::/\n", root).limit == UINT64_MAX);
}

static void disk(void **state) {
    (void)state;
    uint64_t here = 0, deeper = 0;
    char *missing = sn_path_join(root, "not/there/yet");
    assert_ok(sn_disk_free(root, &here));
    assert_ok(sn_disk_free(missing, &deeper));
    assert_true(here > 0 && deeper > 0);
    assert_ok(sn_disk_free("not-here/either", &deeper));
    assert_ok(sn_disk_free("", &deeper));
    assert_ok(sn_disk_free("/no-such-folder", &deeper));
    sn_free(missing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rss_follows_use),
        cmocka_unit_test_setup_teardown(version_2_smallest_ancestor, new_root, drop_root),
        cmocka_unit_test_setup_teardown(version_2_of_a_container, new_root, drop_root),
        cmocka_unit_test_setup_teardown(version_1, new_root, drop_root),
        cmocka_unit_test_setup_teardown(odd_texts, new_root, drop_root),
        cmocka_unit_test_setup_teardown(disk, new_root, drop_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
