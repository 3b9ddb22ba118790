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
    sn_reduce_scatter_cpu[0].run(c);
}

static sn_call call(sn_dtype form, int64_t n, int64_t unit, int64_t ranks, uint32_t seed) {
    sn_call c = {.attrs = {.i = {[SN_REDUCE_SCATTER_UNIT] = unit, [SN_REDUCE_SCATTER_ELEMENTS] = n, [SN_REDUCE_SCATTER_RANKS] = ranks}}};
    c.in[0] = op_tensor(form, sn_shape_of(n), seed, 2);
    op_prepare(&sn_op_reduce_scatter, &c, 1);
    return c;
}

static void sums_in_rank_order(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 7, 1009, 4096, 5001}, units[] = {1, 4, 1024};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t u = 0; u < 3; u++)
            for (int ranks = 1; ranks <= 5; ranks += 2) TEST_EACH_FORM(a) {
                    const int64_t n = sizes[s], shard = (((n + units[u] - 1) / units[u] + ranks - 1) / ranks) * units[u];
                    job j;
                    for (int r = 0; r < ranks; r++) j.calls[r] = call(test_forms[a], n, units[u], ranks, (uint32_t)r);
                    assert_int_equal(sn_elements(&j.calls[0].out[0]), shard);
                    test_ranks(ranks, run_rank, &j);
                    sn_tensor one = op_tensor(test_forms[a], sn_shape_of(1), 0, 0);
                    for (int64_t i = 0; i < shard * ranks; i++) {
                        float sum = 0;
                        for (int r = 0; i < n && r < ranks; r++) {
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

static void alone(void **state) { /* without a comm: a copy, padded with zeros */
    (void)state;
    sn_call c = call(SN_F32, 1009, 1024, 1, 3);
    op_same_bits(&sn_op_reduce_scatter, &c);
    assert_int_equal(sn_elements(&c.out[0]), 1024);
    assert_memory_equal(c.out[0].data, c.in[0].data, 1009 * 4);
    for (int64_t i = 1009; i < 1024; i++) assert_true(op_get(&c.out[0], i) == 0);
    op_free_call(&c);
}

static void shares(void **state) { /* the last ranks hold fewer elements or none */
    (void)state;
    int64_t shard;
    assert_true(sn_shard_elements(10, 4, 4, &shard));
    assert_int_equal(shard, 4);
    const int64_t used[] = {4, 4, 2, 0};
    for (int r = 0; r < 4; r++) assert_int_equal(sn_shard_used(10, shard, r), used[r]);
    assert_false(sn_shard_elements(INT64_MAX, INT64_MAX - 1, 1, &shard));
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F32, .shape = sn_shape_of(2, 3)}}};
    c.attrs.i[SN_REDUCE_SCATTER_UNIT] = 1;
    c.attrs.i[SN_REDUCE_SCATTER_RANKS] = 2;
    c.attrs.i[SN_REDUCE_SCATTER_ELEMENTS] = 7;
    op_refused(&sn_op_reduce_scatter, &c, 1, "x must have 7 elements, found [2,3]");
    c.attrs.i[SN_REDUCE_SCATTER_ELEMENTS] = 6;
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
