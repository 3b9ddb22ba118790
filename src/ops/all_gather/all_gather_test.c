#include "support/small_ops.h"

#include <string.h>

#include "ops/all_gather/all_gather.h"
#include "ops/math/shard.h"
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

/* As planned for a rank: x is what it holds. `into`: its part of the whole, which is gathered in place. */
static sn_call call(sn_dtype form, sn_shape shape, int64_t unit, int64_t ranks, int64_t rank, bool into) {
    sn_call c = {.attrs = {.i = {[SN_ALL_GATHER_UNIT] = unit}}};
    c.in[0] = op_tensor(form, shape, (uint32_t)rank, 2);
    if (into) c.in[1] = op_tensor(form, shape, 0, 0);
    op_prepare(&sn_op_all_gather, &c, into ? 2 : 1);
    const int64_t n = sn_elements(&c.in[0]), shard = sn_shard(n, unit, ranks);
    c.in[0].shape = sn_shape_of(sn_shard_used(n, shard, rank));
    return c;
}

static const sn_tensor *whole(const sn_call *c) { return sn_has(c, 1) ? &c->in[1] : &c->out[0]; }

static void every_rank_gets_all(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 7, 1009, 4096, 5001}, units[] = {1, 4, 1024};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t u = 0; u < 3; u++)
            for (int ranks = 1; ranks <= 5; ranks += 2) TEST_EACH_FORM(a) {
                    const int64_t n = sizes[s], shard = sn_shard(n, units[u], ranks);
                    job j;
                    for (int r = 0; r < ranks; r++) j.calls[r] = call(test_forms[a], sn_shape_of(n), units[u], ranks, r, s % 2);
                    test_ranks(ranks, false, run_rank, &j);
                    for (int64_t i = 0; i < n; i++)
                        for (int r = 0; r < ranks; r++)
                            assert_true(op_get(whole(&j.calls[r]), i) == op_get(&j.calls[i / shard].in[0], i % shard));
                    for (int r = 0; r < ranks; r++) op_free_call(&j.calls[r]);
                }
}

static void in_place(void **state) { /* x is this rank's part of the whole itself */
    (void)state;
    enum { N = 1009, UNIT = 16, RANKS = 3 };
    job j;
    const int64_t shard = sn_shard(N, UNIT, RANKS);
    void *own[RANKS];
    for (int r = 0; r < RANKS; r++) {
        sn_call *c = &j.calls[r];
        *c = call(SN_F32, sn_shape_of(N), UNIT, RANKS, r, true);
        for (int64_t i = 0; i < N; i++) op_set(&c->in[1], i, (double)(r * 10000 + i));
        own[r] = c->in[0].data;
        c->in[0].data = (float *)c->in[1].data + shard * r;
    }
    test_ranks(RANKS, false, run_rank, &j);
    for (int r = 0; r < RANKS; r++)
        for (int64_t i = 0; i < N; i++) assert_true(op_get(&j.calls[r].in[1], i) == (double)(i / shard * 10000 + i));
    for (int r = 0; r < RANKS; r++) {
        j.calls[r].in[0].data = own[r];
        op_free_call(&j.calls[r]);
    }
}

static void blocks(void **state) { /* a quantised weight, in rows */
    (void)state;
    job j;
    for (int r = 0; r < 3; r++) {
        j.calls[r] = call(SN_Q4_1, sn_shape_of(4, 64), 32, 3, r, false);
        memset(j.calls[r].in[0].data, r + 1, sn_tensor_bytes(&j.calls[r].in[0]));
    }
    assert_int_equal(j.calls[0].out[0].shape.rank, 2);
    test_ranks(3, false, run_rank, &j);
    for (int r = 0; r < 3; r++) {
        const uint8_t *bytes = j.calls[r].out[0].data;
        for (size_t i = 0; i < 8 * 20; i++) assert_int_equal(bytes[i], i / 60 + 1);
        op_free_call(&j.calls[r]);
    }
}

static void alone(void **state) {
    (void)state;
    sn_call c = call(SN_F32, sn_shape_of(9, 112), 1024, 1, 0, false);
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
    c.attrs.i[SN_ALL_GATHER_UNIT] = 32;
    c.in[1] = (sn_tensor){.dtype = SN_Q4_1, .shape = sn_shape_of(96)};
    op_refused(&sn_op_all_gather, &c, 2, "[96]");
    c.attrs.i[SN_ALL_GATHER_AXIS] = 9;
    op_refused(&sn_op_all_gather, &c, 1, "no mesh axis 9");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rank_gets_all), cmocka_unit_test(in_place), cmocka_unit_test(blocks),
                                       cmocka_unit_test(alone), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
