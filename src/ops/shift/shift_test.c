#include "support/small_ops.h"

#include <string.h>

#include "graph/split.h"
#include "ops/shift/shift.h"
#include "run/run.h"

extern const sn_op sn_op_shift;

enum { MOST = 5 };

typedef struct job {
    sn_call calls[MOST];
} job;

static void run_rank(void *context, int64_t rank, int member) {
    (void)member;
    sn_shift_cpu[0].run(&((job *)context)->calls[rank]);
}

static void each_gets_what_the_one_before_had(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MOST; ranks++) TEST_EACH_FORM(a) {
            job j;
            sn_comm *comms;
            sn_team *team;
            assert_ok(sn_comm_threads_new(ranks, &comms));
            assert_ok(sn_team_open(ranks, NULL, &team));
            for (int r = 0; r < ranks; r++) {
                sn_call *c = &j.calls[r];
                *c = (sn_call){.comm = &comms[r], .attrs = {.i = {[SN_SHIFT_AXIS] = SN_MESH_CP}}};
                c->in[0] = op_tensor(test_forms[a], sn_shape_of(7, 33), (uint32_t)r + 1, 2);
                op_prepare(&sn_op_shift, c, 1);
            }
            sn_team_run(team, ranks, run_rank, &j);
            for (int r = 0; r < ranks; r++)
                assert_memory_equal(j.calls[(r + 1) % ranks].out[0].data, j.calls[r].in[0].data, sn_tensor_bytes(&j.calls[r].in[0]));
            for (int r = 0; r < ranks; r++) op_free_call(&j.calls[r]);
            sn_team_close(team);
            sn_comm_threads_free(comms);
        }
}

static void misfits_are_refused(void **state) {
    (void)state;
    sn_call c = {.n_in = 1, .n_out = 1, .attrs = {.i = {[SN_SHIFT_AXIS] = SN_MESH_AXES}}};
    c.in[0] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(3)};
    assert_int_equal(sn_op_shift.shape(&c), SN_ERR_SHAPE);
    assert_non_null(strstr(sn_error_text(), "no mesh axis 6"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_gets_what_the_one_before_had), cmocka_unit_test(misfits_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
