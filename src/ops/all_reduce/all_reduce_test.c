#include "support/small_ops.h"

#include <string.h>

#include "graph/split.h"
#include "ops/all_reduce/all_reduce.h"
#include "support/ranks.h"

extern const sn_op sn_op_all_reduce;

enum { MOST = 5 };

typedef struct job {
    sn_call calls[MOST];
} job;

static void run_rank(void *context, sn_comm *comm) {
    sn_call *c = &((job *)context)->calls[comm->rank];
    c->comm = comm;
    c->scratch = sn_alloc(sn_all_reduce_cpu[0].scratch(c, 1));
    sn_all_reduce_cpu[0].run(c);
    sn_free(c->scratch);
}

static const int64_t sizes[] = {7, 1009, 1, 4096, 0};

/* `pairs` summands of this form, and what they go into, of another form. */
static sn_call call(sn_dtype form, sn_dtype into, int pairs, int64_t ranks, int64_t rank, int64_t adds) {
    sn_call c = {.attrs = {.i = {[SN_ALL_REDUCE_RANKS] = ranks, [SN_ALL_REDUCE_ADDS] = adds}}};
    for (int k = 0; k < pairs; k++) {
        c.in[2 * k] = op_tensor(form, sn_shape_of(sizes[k % 5]), (uint32_t)(rank * 10 + k), 2);
        c.in[2 * k + 1] = op_tensor(into, sn_shape_of(sizes[k % 5]), (uint32_t)(100 + k), 2); /* alike on all ranks */
    }
    op_prepare(&sn_op_all_reduce, &c, 2 * pairs);
    return c;
}

static void check(sn_dtype form, sn_dtype into, int pairs, int ranks, bool copies) {
    const int64_t adds = 0x155 & ((1 << pairs) - 1);
    job j;
    sn_call before = call(form, into, pairs, ranks, 0, adds);
    for (int r = 0; r < ranks; r++) j.calls[r] = call(form, into, pairs, ranks, r, adds);
    test_ranks(ranks, copies, run_rank, &j);
    sn_tensor x = op_tensor(form, sn_shape_of(1), 0, 0), y = op_tensor(into, sn_shape_of(1), 0, 0);
    for (int k = 0; k < pairs; k++)
        for (int64_t i = 0; i < sizes[k % 5]; i++) {
            float sum = 0;
            for (int r = 0; r < ranks; r++)
                sum = r ? sum + (float)op_get(&j.calls[r].in[2 * k], i) : (float)op_get(&j.calls[r].in[2 * k], i);
            op_set(&x, 0, (double)sum);
            float wanted = (float)op_get(&x, 0);
            if (adds >> k & 1) wanted = (float)op_get(&before.in[2 * k + 1], i) + wanted;
            op_set(&y, 0, (double)wanted);
            for (int r = 0; r < ranks; r++) assert_true(op_get(&j.calls[r].in[2 * k + 1], i) == op_get(&y, 0));
        }
    op_free_tensor(&x);
    op_free_tensor(&y);
    op_free_call(&before);
    for (int r = 0; r < ranks; r++) op_free_call(&j.calls[r]);
}

static void sums_in_rank_order(void **state) {
    (void)state;
    for (int pairs = 1; pairs <= SN_ALL_REDUCE_MOST; pairs++)
        for (int ranks = 1; ranks <= MOST; ranks++)
            TEST_EACH_FORM(a) TEST_EACH_FORM(b) check(test_forms[a], test_forms[b], pairs, ranks, ranks % 2);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(6)},
                        {.dtype = SN_F32, .shape = sn_shape_of(6)},
                        {.dtype = SN_F32, .shape = sn_shape_of(6)}}};
    c.attrs.i[SN_ALL_REDUCE_RANKS] = 2;
    op_refused(&sn_op_all_reduce, &c, 3, "wants pairs of x and into, found 3");
    c.attrs.i[SN_ALL_REDUCE_ADDS] = 2;
    op_refused(&sn_op_all_reduce, &c, 2, "adds is 2, of 1 sums");
    c.attrs.i[SN_ALL_REDUCE_ADDS] = 0;
    c.in[1].shape = sn_shape_of(2, 3);
    op_refused(&sn_op_all_reduce, &c, 2, "[2,3]");
    c.in[1] = (sn_tensor){.dtype = SN_I32, .shape = sn_shape_of(6)};
    op_refused(&sn_op_all_reduce, &c, 2, "i32");
    c.attrs.i[SN_ALL_REDUCE_RANKS] = 0;
    op_refused(&sn_op_all_reduce, &c, 2, "ranks must be 1 or more");
    c.attrs.i[SN_ALL_REDUCE_AXIS] = SN_MESH_AXES;
    op_refused(&sn_op_all_reduce, &c, 2, "no mesh axis");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_in_rank_order), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
