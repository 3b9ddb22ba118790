/* More than 2^31 elements: tables and caches of which only the few pages that a kernel should touch have memory behind them.
 * An index in 32 bits reads or writes somewhere else. */
#include <string.h>
#include <sys/mman.h>

#include "ops/attention/attention.h"
#include "ops/embedding/embedding.h"
#include "ops/kv_write/kv_write.h"
#include "support/attention_case.h"
#include "tensor/convert.h"

extern const sn_op sn_op_embedding, sn_op_select_rows, sn_op_kv_write, sn_op_paged_attention;

enum { COLUMNS = 1024, ROWS = (1 << 21) + 9, TOKENS = 64, HEADS = 4, DIM = 64 };

/* Zeros without memory; skips the test where that much cannot be mapped. */
static sn_tensor sparse(sn_dtype form, sn_shape shape) {
    sn_tensor t = {.dtype = form, .shape = shape};
    assert_true(sn_elements(&t) > INT64_C(1) << 31);
    t.data = mmap(NULL, sn_tensor_bytes(&t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (t.data == MAP_FAILED) skip();
    return t;
}

static void drop(sn_tensor *t) { munmap(t->data, sn_tensor_bytes(t)); }

static void rows_beyond_two_billion_elements(void **state) {
    (void)state;
    static const sn_op *const ops[] = {&sn_op_embedding, &sn_op_select_rows};
    static const int32_t rows[] = {ROWS - 1, 0, ROWS - 2};
    sn_tensor table = sparse(SN_F32, sn_shape_of(ROWS, COLUMNS)), picked = {(void *)rows, SN_I32, sn_shape_of(3)};
    float want[COLUMNS];
    test_fill(want, COLUMNS, 1, 1);
    memcpy((float *)table.data + (int64_t)(ROWS - 1) * COLUMNS, want, sizeof want);
    for (int o = 0; o < 2; o++) {
        const sn_kernel *kernels[8];
        int n_kernels = case_kernels(ops[o], kernels, 8);
        for (int k = 0; k < n_kernels; k++) {
            sn_call c = {.n_in = 2, .in = {o ? table : picked, o ? picked : table}, .attrs.i = {[SN_EMBEDDING_DTYPE] = SN_F32}};
            case_run(ops[o], kernels[k], &c, 2);
            assert_memory_equal(c.out[0].data, want, sizeof want);
            for (int i = COLUMNS; i < 3 * COLUMNS; i++) assert_true(((float *)c.out[0].data)[i] == 0);
        }
        case_tensors_free();
    }
    drop(&table);
}

/* The cache's last block is written, and attention over it sees what was written. */
static void a_cache_beyond_two_billion_elements(void **state) {
    (void)state;
    const int64_t blocks = (INT64_C(1) << 31) / (2 * HEADS * TOKENS * DIM) + 3;
    static const sn_op *const op = &sn_op_paged_attention;
    const sn_kernel *writers[8], *readers[8];
    int n_writers = case_kernels(&sn_op_kv_write, writers, 8), n_readers = case_kernels(op, readers, 8);
    for (int w = 0; w < n_writers; w++) {
        sn_tensor cache = sparse(SN_F16, sn_shape_of(blocks, 2, HEADS, TOKENS, DIM));
        sn_tensor k = case_tensor(SN_F32, sn_shape_of(1, HEADS * DIM)), v = case_tensor(SN_F32, sn_shape_of(1, HEADS * DIM));
        int32_t slot = (int32_t)((blocks - 1) * TOKENS), block = (int32_t)(blocks - 1), zero = 0;
        for (int64_t i = 0; i < HEADS * DIM; i++) {
            ((float *)k.data)[i] = 1;
            ((float *)v.data)[i] = (float)(i % 61);
        }
        sn_call c = {.n_in = 4, .in = {cache, k, v, {&slot, SN_I32, sn_shape_of(1)}}, .attrs.i = {[SN_KV_WRITE_HEAD_DIM] = DIM}};
        case_run(&sn_op_kv_write, writers[w], &c, 1);
        const uint16_t *last = (const uint16_t *)cache.data + (blocks * 2 - 1) * HEADS * TOKENS * DIM;
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < DIM; i++) assert_true(sn_f16_to_f32(last[h * TOKENS * DIM + i]) == (float)((h * DIM + i) % 61));
        for (int r = 0; r < n_readers; r++) {
            sn_call a = {.n_in = 5, .attrs = {.i = {[SN_ATTENTION_HEAD_DIM] = DIM}, .f = {[SN_ATTENTION_SCALE] = 0.125}}};
            a.in[0] = k;
            a.in[1] = cache;
            a.in[2] = (sn_tensor){&block, SN_I32, sn_shape_of(1, 1)};
            a.in[3] = a.in[4] = (sn_tensor){&zero, SN_I32, sn_shape_of(1)};
            case_run(op, readers[r], &a, 1);
            for (int64_t i = 0; i < HEADS * DIM; i++)
                if (case_at(&a.out[0], i) != (double)(i % 61))
                    fail_msg("%s: element %d is %g", readers[r]->name, (int)i, case_at(&a.out[0], i));
        }
        drop(&cache);
        case_tensors_free();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_beyond_two_billion_elements),
                                       cmocka_unit_test(a_cache_beyond_two_billion_elements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
