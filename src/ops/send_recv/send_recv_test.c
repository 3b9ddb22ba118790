#include "support/small_ops.h"

#include <string.h>

#include "ops/send_recv/send_recv.h"
#include "run/run.h"
#include "support/ranks.h"

extern const sn_op sn_op_send_recv;

typedef struct job {
    sn_comm *comms;
    sn_call calls[3];
} job;

static void run_rank(void *context, sn_comm *comm) {
    job *j = context;
    sn_call *c = &j->calls[comm->rank];
    c->comm = &j->comms[comm->rank];
    if (sn_has(c, 0) || c->out[0].shape.rank) sn_send_recv_cpu[0].run(c);
}

/* Rank 2's x arrives on rank 0; rank 1 has no part in it. In blocks too, and of nothing. */
static void arrives(void **state) {
    (void)state;
    const sn_shape shapes[] = {sn_shape_of(1), sn_shape_of(3, 64), sn_shape_of(1000, 96), sn_shape_of(0, 32)};
    const sn_dtype forms[] = {SN_F32, SN_BF16, SN_F64, SN_I32};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            job j = {0};
            sn_call all = {.attrs = {.i = {[SN_SEND_RECV_FROM] = 2, [SN_SEND_RECV_TO] = 0}}};
            all.in[0] = op_tensor(forms[f], shapes[s], 0, 0);
            op_prepare(&sn_op_send_recv, &all, 1);
            assert_true(sn_shape_equal(&all.out[0].shape, &shapes[s]) && all.out[0].dtype == forms[f]);
            const size_t bytes = sn_tensor_bytes(&all.in[0]);
            for (size_t i = 0; i < bytes; i++) ((uint8_t *)all.in[0].data)[i] = (uint8_t)(i * 7 + 1);
            assert_ok(sn_comm_threads_new(3, &j.comms));
            for (int r = 0; r < 3; r++) {
                j.calls[r] = all;
                if (r != 2) j.calls[r].in[0] = (sn_tensor){0};
                if (r != 0) j.calls[r].out[0] = (sn_tensor){0};
            }
            test_ranks(3, false, run_rank, &j);
            assert_memory_equal(all.out[0].data, all.in[0].data, bytes);
            sn_comm_threads_free(j.comms);
            op_free_call(&all);
        }
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(4)}}};
    op_refused(&sn_op_send_recv, &c, 1, "two ranks of the axis, found 0 and 0");
    c.attrs.i[SN_SEND_RECV_TO] = 1;
    c.attrs.i[SN_SEND_RECV_AXIS] = 9;
    op_refused(&sn_op_send_recv, &c, 1, "no mesh axis 9");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(arrives), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
