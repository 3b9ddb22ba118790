#include "support/small_ops.h"

#include <math.h>
#include <string.h>

#include "ops/math/shard.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "support/ranks.h"

extern const sn_op sn_op_reduce_scatter;

typedef struct job {
    sn_call calls[16];
} job;

static void run_rank(void *context, sn_comm *comm) {
    sn_call *c = &((job *)context)->calls[comm->rank];
    c->comm = comm;
    c->scratch = sn_alloc(sn_reduce_scatter_cpu[0].scratch(c, 1));
    sn_reduce_scatter_cpu[0].run(c);
    sn_free(c->scratch);
}

/* As planned for a rank: the output is what it holds of the sum. */
static sn_call call(sn_dtype form, int64_t n, int64_t unit, int64_t ranks, int64_t rank, bool copies) {
    sn_call c = {.attrs = {.i = {[SN_REDUCE_SCATTER_UNIT] = unit, [SN_REDUCE_SCATTER_RANKS] = ranks, [SN_REDUCE_SCATTER_COPIES] = copies}}};
    c.in[0] = op_tensor(form, sn_shape_of(n), (uint32_t)rank, 2);
    op_prepare(&sn_op_reduce_scatter, &c, 1);
    assert_true(sn_shape_equal(&c.out[0].shape, &c.in[0].shape));
    c.out[0].shape.d[0] = sn_shard_used(n, sn_shard(n, unit, ranks), rank);
    return c;
}

static void check_sums(bool copies, int64_t more) {
    const int64_t sizes[] = {0, 1, 7, 1009, 4096, 5001, more}, units[] = {1, 4, 1024};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t u = 0; u < 3; u++)
            for (int ranks = 1; ranks <= 5; ranks += 2) TEST_EACH_FORM(a) {
                    if (s == 6 && (u < 2 || ranks != 3)) continue;
                    const int64_t n = sizes[s], shard = (((n + units[u] - 1) / units[u] + ranks - 1) / ranks) * units[u];
                    job j;
                    for (int r = 0; r < ranks; r++) j.calls[r] = call(test_forms[a], n, units[u], ranks, r, copies);
                    test_ranks(ranks, copies, run_rank, &j);
                    sn_tensor one = op_tensor(test_forms[a], sn_shape_of(1), 0, 0);
                    for (int64_t i = 0; i < n; i++) {
                        float sum = 0;
                        for (int r = 0; r < ranks; r++) {
                            const float x = (float)op_get(&j.calls[r].in[0], i);
                            sum = r ? sum + x : x;
                        }
                        op_set(&one, 0, (double)sum);
                        assert_true(op_get(&j.calls[i / shard].out[0], i % shard) == op_get(&one, 0));
                    }
                    op_free_tensor(&one);
                    for (int r = 0; r < ranks; r++) op_free_call(&j.calls[r]);
                }
}

/* The largest is summed in several steps, the last of which is short. */
static void sums_in_rank_order(void **state) {
    (void)state;
    check_sums(false, 1);
    check_sums(true, 1100007);
}

static void alone(void **state) { /* without a comm: a copy */
    (void)state;
    sn_call c = call(SN_F32, 1009, 1024, 1, 0, false);
    op_same_bits(&sn_op_reduce_scatter, &c);
    assert_int_equal(sn_elements(&c.out[0]), 1009);
    assert_memory_equal(c.out[0].data, c.in[0].data, 1009 * 4);
    op_free_call(&c);
}

static void shares(void **state) { /* the last ranks hold fewer elements or none */
    (void)state;
    const int64_t shard = sn_shard(10, 4, 4), used[] = {4, 4, 2, 0};
    assert_int_equal(shard, 4);
    for (int r = 0; r < 4; r++) assert_int_equal(sn_shard_used(10, shard, r), used[r]);
    assert_int_equal(sn_shard(0, 4, 3), 0);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}}};
    c.attrs.i[SN_REDUCE_SCATTER_UNIT] = 1;
    c.attrs.i[SN_REDUCE_SCATTER_RANKS] = 2;
    c.attrs.i[SN_REDUCE_SCATTER_UNIT] = 0;
    op_refused(&sn_op_reduce_scatter, &c, 1, "unit and ranks must be 1 or more");
    c.attrs.i[SN_REDUCE_SCATTER_AXIS] = 9;
    op_refused(&sn_op_reduce_scatter, &c, 1, "no mesh axis 9");
    c.in[0].dtype = SN_I32;
    op_refused(&sn_op_reduce_scatter, &c, 1, "found i32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_in_rank_order), cmocka_unit_test(alone), cmocka_unit_test(shares),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
