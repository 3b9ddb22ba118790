#include "support/small_ops.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/embedding/embedding.h"
#include "tensor/convert.h"

extern const sn_op sn_op_embedding, sn_op_embedding_grad;

enum { VOCAB = 700 }; /* more rows than a task of the gradient takes */

/* Ids with repeats, the first and last row, and two that are no rows. */
static sn_tensor ids_of(int64_t n) {
    sn_tensor t = op_tensor(SN_I32, sn_shape_of(n), 0, 0);
    for (int64_t i = 0; i < n; i++) ((int32_t *)t.data)[i] = (int32_t)(i * i * 31 % VOCAB);
    if (n > 6) memcpy(t.data, (int32_t[]){0, VOCAB - 1, -1, VOCAB, 5, 5}, 6 * sizeof(int32_t));
    return t;
}

static void rows_of_float_tables(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) {
        const int64_t tokens = test_shapes[s][0], columns = test_shapes[s][1];
        sn_call c = {.attrs = {.i = {[SN_EMBEDDING_DTYPE] = test_forms[b]}}};
        c.in[0] = ids_of(tokens);
        c.in[1] = op_tensor(test_forms[a], sn_shape_of(VOCAB, columns), 1, 2);
        op_prepare(&sn_op_embedding, &c, 2);
        op_same_bits(&sn_op_embedding, &c);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t i = 0; i < columns; i++) {
                const int32_t id = ((const int32_t *)c.in[0].data)[t];
                const double want = id < 0 || id >= VOCAB ? 0 : op_get(&c.in[1], id * columns + i);
                assert_true(fabs(op_get(&c.out[0], t * columns + i) - want) <= op_tolerance(test_forms[b]) * 3);
                if (a == b) assert_true(op_get(&c.out[0], t * columns + i) == want);
            }
        op_free_call(&c);
    }
}

static void rows_of_a_quantised_table(void **state) {
    (void)state;
    const int64_t columns = 1056; /* more than one piece */
    sn_call c = {.attrs = {.i = {[SN_EMBEDDING_DTYPE] = SN_F32}}};
    float row[1056], back[1056];
    c.in[0] = op_tensor_i32(sn_shape_of(3), (int32_t[]){2, 0, 1});
    c.in[1] = op_tensor(SN_Q8_0, sn_shape_of(3, columns), 0, 0);
    for (int r = 0; r < 3; r++) {
        test_fill(row, 1056, (uint32_t)r + 9, 1);
        assert_ok(sn_from_f32(SN_Q8_0, row, columns, (char *)c.in[1].data + (size_t)r * sn_row_bytes(&c.in[1])));
    }
    op_prepare(&sn_op_embedding, &c, 2);
    op_same_bits(&sn_op_embedding, &c);
    for (int t = 0; t < 3; t++) {
        sn_to_f32(SN_Q8_0, (char *)c.in[1].data + (size_t)((const int32_t *)c.in[0].data)[t] * sn_row_bytes(&c.in[1]), columns, back);
        assert_memory_equal((float *)c.out[0].data + t * columns, back, sizeof back);
    }
    assert_string_equal(sn_op_embedding.axes(&c), "t,vE->tE");
    op_free_call(&c);
}

static void gradient(void **state) {
    (void)state;
    TEST_EACH_SHAPE(s) TEST_EACH_FORM(a) TEST_EACH_FORM(b) for (int adds = 0; adds <= 1; adds++) {
        const int64_t tokens = test_shapes[s][0], columns = test_shapes[s][1];
        sn_call c = {.attrs = {.i = {[SN_EMBEDDING_GRAD_VOCAB] = VOCAB, [SN_EMBEDDING_GRAD_DTYPE] = test_forms[b]}}};
        c.in[0] = ids_of(tokens);
        c.in[1] = op_tensor(test_forms[a], sn_shape_of(tokens, columns), 1, 2);
        if (adds) c.in[2] = op_tensor(test_forms[b], sn_shape_of(VOCAB, columns), 2, 2);
        double *want = sn_alloc_zero((size_t)(VOCAB * columns + 1), sizeof *want);
        for (int64_t i = 0; adds && i < VOCAB * columns; i++) want[i] = op_get(&c.in[2], i);
        for (int64_t t = 0; t < tokens; t++) {
            const int32_t id = ((const int32_t *)c.in[0].data)[t];
            for (int64_t i = 0; id >= 0 && id < VOCAB && i < columns; i++) want[id * columns + i] += op_get(&c.in[1], t * columns + i);
        }
        op_prepare(&sn_op_embedding_grad, &c, adds ? 3 : 2);
        op_same_bits(&sn_op_embedding_grad, &c);
        assert_int_equal(c.out[0].shape.rank, adds ? 0 : 2);
        assert_true(op_tensor_error(adds ? &c.in[2] : &c.out[0], want) <= op_tolerance(test_forms[b]));
        sn_free(want);
        op_free_call(&c);
    }
}

/* A rank that holds rows [first, first + n): summands of y add up to it, the gradient's rows are the whole one's. */
static void some_rows_of_the_table(void **state) {
    (void)state;
    enum { TOKENS = 40, COLUMNS = 33, CUT = 7 };
    sn_call c = {.attrs = {.i = {[SN_EMBEDDING_DTYPE] = SN_F32}}}, d = {.attrs = {.i = {[SN_EMBEDDING_GRAD_VOCAB] = VOCAB}}};
    c.in[0] = ids_of(TOKENS);
    c.in[1] = op_tensor(SN_F32, sn_shape_of(VOCAB, COLUMNS), 3, 2);
    op_prepare(&sn_op_embedding, &c, 2);
    op_run(&sn_op_embedding, &c);
    d.in[0] = ids_of(TOKENS);
    d.in[1] = op_tensor(SN_F32, sn_shape_of(TOKENS, COLUMNS), 4, 2);
    op_prepare(&sn_op_embedding_grad, &d, 2);
    op_run(&sn_op_embedding_grad, &d);
    for (int rank = 0; rank < 2; rank++) {
        const int64_t first = rank ? CUT : 0, rows = rank ? VOCAB - CUT : CUT;
        sn_call part = {.attrs = {.i = {[SN_EMBEDDING_DTYPE] = SN_F32, [SN_EMBEDDING_FIRST] = first}}};
        part.in[0] = ids_of(TOKENS);
        part.in[1] = op_tensor_of(SN_F32, sn_shape_of(rows, COLUMNS), (const float *)c.in[1].data + first * COLUMNS);
        op_prepare(&sn_op_embedding, &part, 2);
        op_same_bits(&sn_op_embedding, &part);
        for (int t = 0; t < TOKENS; t++) {
            const int32_t id = ((const int32_t *)part.in[0].data)[t];
            const bool here = id >= first && id < first + rows;
            for (int i = 0; i < COLUMNS; i++)
                assert_true(op_get(&part.out[0], t * COLUMNS + i) == (here ? op_get(&c.out[0], t * COLUMNS + i) : 0));
        }
        op_free_call(&part);
        sn_call grad = {.attrs = {.i = {[SN_EMBEDDING_GRAD_VOCAB] = VOCAB, [SN_EMBEDDING_GRAD_FIRST] = first}}};
        grad.in[0] = ids_of(TOKENS);
        grad.in[1] = op_tensor(SN_F32, sn_shape_of(TOKENS, COLUMNS), 4, 2);
        op_prepare(&sn_op_embedding_grad, &grad, 2);
        grad.out[0].shape.d[0] = rows;
        op_same_bits(&sn_op_embedding_grad, &grad);
        assert_memory_equal(grad.out[0].data, (const float *)d.out[0].data + first * COLUMNS, (size_t)(rows * COLUMNS) * sizeof(float));
        op_free_call(&grad);
    }
    op_free_call(&c);
    op_free_call(&d);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_I64, .shape = sn_shape_of(2)}, {.dtype = SN_F32, .shape = sn_shape_of(3, 4)}}};
    op_refused(&sn_op_embedding, &c, 2, "ids must be i32, found i64");
    c.in[0].dtype = SN_I32;
    c.in[1].dtype = SN_I8;
    op_refused(&sn_op_embedding, &c, 2, "found i8");
    c.in[1].dtype = SN_F32;
    c.attrs.i[SN_EMBEDDING_GRAD_VOCAB] = 10;
    op_refused(&sn_op_embedding_grad, &c, 2, "each of the 2 ids, found 3");
    c.in[0].shape = sn_shape_of(3);
    c.attrs.i[SN_EMBEDDING_GRAD_VOCAB] = INT64_C(1) << 61;
    op_refused(&sn_op_embedding_grad, &c, 2, "no table of");
    c.attrs.i[SN_EMBEDDING_GRAD_VOCAB] = 10;
    c.in[2] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(9, 4)};
    op_refused(&sn_op_embedding_grad, &c, 3, "acc must be [10,4], found [9,4]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_float_tables), cmocka_unit_test(rows_of_a_quantised_table),
                                       cmocka_unit_test(gradient), cmocka_unit_test(some_rows_of_the_table), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
