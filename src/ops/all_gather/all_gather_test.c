#include "support/small_ops.h"

#include <string.h>

#include "ops/all_gather/all_gather.h"
#include "support/ranks.h"

extern const sn_op sn_op_all_gather;

typedef struct job {
    sn_call calls[16];
} job;

static void run_rank(void *context, sn_comm *comm) {
    sn_call *c = &((job *)context)->calls[comm->rank];
    c->comm = comm;
    sn_all_gather_cpu[0].run(c);
}

static sn_call call(sn_dtype form, int64_t n, int64_t unit, int64_t rows, int64_t shard, uint32_t seed) {
    sn_call c = {.attrs = {.i = {[SN_ALL_GATHER_UNIT] = unit, [SN_ALL_GATHER_ELEMENTS] = n, [SN_ALL_GATHER_ROWS] = rows}}};
    c.in[0] = op_tensor(form, sn_shape_of(shard), seed, 2);
    op_prepare(&sn_op_all_gather, &c, 1);
    return c;
}

static void every_rank_gets_all(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 7, 1009, 4096, 5001}, units[] = {1, 4, 1024};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t u = 0; u < 3; u++)
            for (int ranks = 1; ranks <= 5; ranks += 2) TEST_EACH_FORM(a) {
                    const int64_t n = sizes[s], shard = (((n + units[u] - 1) / units[u] + ranks - 1) / ranks) * units[u];
                    job j;
                    for (int r = 0; r < ranks; r++) j.calls[r] = call(test_forms[a], n, units[u], 0, shard, (uint32_t)r);
                    test_ranks(ranks, run_rank, &j);
                    for (int64_t i = 0; i < n; i++)
                        for (int r = 0; r < ranks; r++)
                            assert_true(op_get(&j.calls[r].out[0], i) == op_get(&j.calls[i / shard].in[0], i % shard));
                    for (int r = 0; r < ranks; r++) op_free_call(&j.calls[r]);
                }
}

static void blocks(void **state) { /* a quantised weight, in rows */
    (void)state;
    job j;
    for (int r = 0; r < 3; r++) {
        j.calls[r] = call(SN_Q4_1, 4 * 64, 32, 4, 96, 0);
        memset(j.calls[r].in[0].data, r + 1, sn_tensor_bytes(&j.calls[r].in[0]));
    }
    assert_int_equal(j.calls[0].out[0].shape.rank, 2);
    test_ranks(3, run_rank, &j);
    for (int r = 0; r < 3; r++) {
        const uint8_t *bytes = j.calls[r].out[0].data;
        for (size_t i = 0; i < 8 * 20; i++) assert_int_equal(bytes[i], i / 60 + 1);
        op_free_call(&j.calls[r]);
    }
}

static void alone(void **state) {
    (void)state;
    sn_call c = call(SN_F32, 1008, 1024, 9, 1024, 3);
    op_same_bits(&sn_op_all_gather, &c);
    assert_int_equal(c.out[0].shape.d[1], 112);
    assert_memory_equal(c.out[0].data, c.in[0].data, 1008 * 4);
    op_free_call(&c);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_Q4_1, .shape = sn_shape_of(64)}}};
    c.attrs.i[SN_ALL_GATHER_UNIT] = 16;
    op_refused(&sn_op_all_gather, &c, 1, "multiple of 32, the block of q4_1, found 16");
    c.attrs.i[SN_ALL_GATHER_UNIT] = 96;
    op_refused(&sn_op_all_gather, &c, 1, "whole units of 96 elements, found 64");
    c.attrs.i[SN_ALL_GATHER_UNIT] = 32;
    c.attrs.i[SN_ALL_GATHER_ELEMENTS] = 64;
    c.attrs.i[SN_ALL_GATHER_ROWS] = 3;
    op_refused(&sn_op_all_gather, &c, 1, "64 elements do not fill 3 rows");
    c.attrs.i[SN_ALL_GATHER_ROWS] = 4;
    op_refused(&sn_op_all_gather, &c, 1, "no valid size");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rank_gets_all), cmocka_unit_test(blocks), cmocka_unit_test(alone),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
