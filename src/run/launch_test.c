#include "run/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

static const char *const variables[] = {"RANK",     "WORLD_SIZE",   "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
                                        "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};

static int clear(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    return 0;
}

static void alone(void **state) {
    (void)state;
    sn_launch l;
    assert_ok(sn_launch_find(&l));
    assert_int_equal(l.size, 1);
    assert_null(l.from);
    setenv("SLURM_PROCID", "0", 1); /* a batch script: many tasks were asked for, this is not one of them */
    setenv("SLURM_NTASKS", "8", 1);
    setenv("RANK", "", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1); /* mpirun -n 1 */
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_ok(sn_launch_find(&l));
    assert_int_equal(l.size, 1);
    assert_int_equal(l.rank, 0);
}

static void in_order(void **state) { /* from the last to the first: each wins over those before */
    (void)state;
    for (int i = 6; i >= 0; i -= 2) {
        sn_launch l;
        char rank[8], size[8];
        snprintf(rank, sizeof rank, "%d", i + 1);
        snprintf(size, sizeof size, "%d", i + 3);
        setenv(variables[i], rank, 1);
        setenv(variables[i + 1], size, 1);
        assert_ok(sn_launch_find(&l));
        assert_int_equal(l.rank, i + 1);
        assert_int_equal(l.size, i + 3);
        assert_string_equal(l.from, variables[i + 1]);
    }
}

static void refuses(void **state) {
    (void)state;
    static const char *const bad[][3] = {{"2", "2", "RANK is 2 and WORLD_SIZE is 2"},
                                         {"0", "100000", "size of at most 1024"},
                                         {"x", "2", "RANK is 'x'"},
                                         {"-1", "2", "RANK is '-1'"},
                                         {"0", "2;", "WORLD_SIZE is '2;'"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sn_launch l;
        setenv("RANK", bad[i][0], 1);
        setenv("WORLD_SIZE", bad[i][1], 1);
        assert_int_equal(sn_launch_find(&l), SN_ERR_USAGE);
        assert_non_null(strstr(sn_error_text(), bad[i][2]));
    }
}

static void no_module(void **state) {
    (void)state;
    sn_comm *c = NULL;
    setenv("SNUG_MPI_MODULE", "/absent/snug_mpi.so", 1);
    assert_int_equal(sn_comm_mpi_open(&(sn_launch){.rank = 1, .size = 3, .from = "WORLD_SIZE"}, &c), SN_ERR_UNSUPPORTED);
    assert_non_null(strstr(sn_error_text(), "WORLD_SIZE says that there are 3 processes"));
    unsetenv("SNUG_MPI_MODULE");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(alone, clear, clear),
                                       cmocka_unit_test_setup_teardown(in_order, clear, clear),
                                       cmocka_unit_test_setup_teardown(refuses, clear, clear), cmocka_unit_test(no_module)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
