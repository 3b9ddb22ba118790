#include "ops/read/read.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "program/files.h"
#include "support/op_call.h"

enum { SIZE = 4096, AT = 37 };
static char path[600];
static uint8_t bytes[SIZE];
static sn_files files;
static sn_status status;

static int start(void **state) {
    (void)state;
    static sn_program_file list[2];
    snprintf(path, sizeof path, "%s/data", test_dir("read"));
    for (int i = 0; i < SIZE; i++) bytes[i] = (uint8_t)(i * 31 + i / 256);
    if (sn_file_replace(path, bytes, SIZE) != SN_OK) return -1;
    list[0].path = list[1].path = path;
    return sn_files_open(list, 2, &files) == SN_OK ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    sn_files_close(&files);
    *strrchr(path, '/') = 0;
    return sn_remove_tree(path) == SN_OK ? 0 : -1;
}

static sn_call call(sn_dtype form, int64_t columns, int64_t n) {
    sn_call c = {.files = &files, .status = &status};
    c.attrs.i[SN_READ_FILE] = 1;
    c.attrs.i[SN_READ_OFFSET] = AT;
    c.attrs.i[SN_READ_BYTES] = n;
    c.attrs.i[SN_READ_DTYPE] = form;
    c.attrs.i[SN_READ_COLUMNS] = columns;
    status = SN_OK;
    return c;
}

/* Runs the call with an output of its own, then into a value that exists; both must hold `want`. */
static void gives(sn_call c, sn_shape shape, const uint8_t *want) {
    sn_call into = c;
    op_prepare(&sn_op_read, &c, 0);
    assert_true(sn_shape_equal(&c.out[0].shape, &shape));
    op_run(&sn_op_read, &c);
    assert_int_equal(status, SN_OK);
    assert_memory_equal(c.out[0].data, want, (size_t)c.attrs.i[SN_READ_BYTES]);
    into.in[0] = op_tensor((sn_dtype)c.attrs.i[SN_READ_DTYPE], shape, 0, 0);
    op_prepare(&sn_op_read, &into, 1);
    assert_int_equal(into.out[0].shape.rank, 0);
    op_run(&sn_op_read, &into);
    assert_int_equal(status, SN_OK);
    assert_memory_equal(into.in[0].data, want, (size_t)c.attrs.i[SN_READ_BYTES]);
    op_free_call(&c);
    op_free_call(&into);
}

static void bytes_as_they_lie(void **state) {
    (void)state;
    gives(call(SN_F32, 5, 60), sn_shape_of(3, 5), bytes + AT);
    gives(call(SN_BF16, 0, 14), sn_shape_of(7), bytes + AT);
    gives(call(SN_Q8_0, 64, 4 * 68), sn_shape_of(4, 64), bytes + AT);
    gives(call(SN_Q8_0, 0, 68), sn_shape_of(64), bytes + AT);
    gives(call(SN_U8, 0, SIZE - AT), sn_shape_of(SIZE - AT), bytes + AT);
}

static void rows_of_heads(void **state) { /* row 2j + h of the file is row h * head_dim / 2 + j of the result */
    (void)state;
    static const struct {
        sn_dtype form;
        int64_t heads, head_dim, columns;
    } cases[] = {{SN_F16, 3, 6, 5}, {SN_Q4_0, 2, 4, 64}, {SN_F32, 2, 8, 0}, {SN_F32, 1, 2, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int64_t rows = cases[k].heads * cases[k].head_dim, half = cases[k].head_dim / 2;
        size_t row = cases[k].columns ? 0 : (size_t)sn_dtypes[cases[k].form].bytes;
        if (cases[k].columns) assert_true(sn_dtype_row_bytes(cases[k].form, cases[k].columns, &row));
        sn_call c = call(cases[k].form, cases[k].columns, rows * (int64_t)row);
        c.attrs.i[SN_READ_HEAD_DIM] = cases[k].head_dim;
        uint8_t want[SIZE];
        for (int64_t head = 0; head < cases[k].heads; head++)
            for (int64_t j = 0; j < half; j++)
                for (int64_t h = 0; h < 2; h++)
                    memcpy(want + (size_t)(head * cases[k].head_dim + h * half + j) * row,
                           bytes + AT + (size_t)(head * cases[k].head_dim + 2 * j + h) * row, row);
        gives(c, cases[k].columns ? sn_shape_of(rows, cases[k].columns) : sn_shape_of(rows), want);
    }
}

static void transposed(void **state) { /* a part of the columns of [7,11] stored, as rows of [11,7] */
    (void)state;
    enum { STORED_ROWS = 7, STORED_COLUMNS = 11, FIRST = 2, N = 6 };
    sn_call c = call(SN_BF16, STORED_ROWS, N * STORED_ROWS * 2);
    c.attrs.i[SN_READ_OFFSET] = AT + FIRST * 2;
    c.attrs.i[SN_READ_STRIDE] = STORED_COLUMNS * 2;
    uint8_t want[N * STORED_ROWS * 2];
    for (int i = 0; i < N; i++)
        for (int o = 0; o < STORED_ROWS; o++)
            memcpy(want + (i * STORED_ROWS + o) * 2, bytes + AT + (o * STORED_COLUMNS + FIRST + i) * 2, 2);
    gives(c, sn_shape_of(N, STORED_ROWS), want);
}

/* Rows [r0, r0 + n) and columns [c0, c0 + m) of what the call gives as a whole. */
static void gives_part(sn_call c, int64_t r0, int64_t n, int64_t c0, int64_t m) {
    sn_call whole = c;
    op_prepare(&sn_op_read, &whole, 0);
    op_run(&sn_op_read, &whole);
    op_prepare(&sn_op_read, &c, 0);
    const sn_tensor *x = &whole.out[0];
    const size_t row = x->shape.rank == 1 ? (size_t)sn_dtypes[x->dtype].bytes : sn_row_bytes(x);
    const size_t begin = (size_t)(c0 / sn_dtypes[x->dtype].block * sn_dtypes[x->dtype].bytes);
    c.attrs.i[SN_READ_FIRST_ROW] = r0;
    c.attrs.i[SN_READ_FIRST_COLUMN] = c0;
    c.out[0].shape = x->shape.rank == 1 ? sn_shape_of(n) : sn_shape_of(n, m);
    op_run(&sn_op_read, &c);
    assert_int_equal(status, SN_OK);
    const size_t own = x->shape.rank == 1 ? row : sn_row_bytes(&c.out[0]);
    for (int64_t i = 0; i < n; i++)
        assert_memory_equal((char *)c.out[0].data + (size_t)i * own, (char *)x->data + (size_t)(r0 + i) * row + begin, own);
    op_free_call(&c);
    op_free_call(&whole);
}

static void parts(void **state) {
    (void)state;
    gives_part(call(SN_F32, 5, 60), 1, 2, 0, 5);
    gives_part(call(SN_F32, 5, 60), 1, 2, 2, 3);
    gives_part(call(SN_F32, 5, 60), 3, 0, 0, 5);
    gives_part(call(SN_Q8_0, 96, 4 * 102), 1, 3, 32, 64);
    gives_part(call(SN_BF16, 0, 14), 3, 4, 0, 0);
    sn_call heads = call(SN_F16, 6, 12 * 6 * 2);
    heads.attrs.i[SN_READ_HEAD_DIM] = 4;
    gives_part(heads, 4, 8, 0, 6);
    gives_part(heads, 4, 4, 2, 3);
    sn_call stored = call(SN_BF16, 7, 6 * 7 * 2);
    stored.attrs.i[SN_READ_STRIDE] = 11 * 2;
    gives_part(stored, 2, 3, 0, 7);
    gives_part(stored, 1, 4, 3, 4);
}

static void fails(sn_call c, const char *text) {
    op_prepare(&sn_op_read, &c, 0);
    op_run(&sn_op_read, &c);
    assert_int_equal(status, SN_ERR_FORMAT);
    if (!strstr(sn_error_text(), text) || !strstr(sn_error_text(), path))
        fail_msg("'%s' does not say '%s' and name the file", sn_error_text(), text);
    op_free_call(&c);
}

static void files_that_end_early(void **state) {
    (void)state;
    fails(call(SN_U8, 0, SIZE - AT + 1), "1 bytes missing at 4096");
    sn_call heads = call(SN_F32, 16, 16 * 64 * 4);
    heads.attrs.i[SN_READ_HEAD_DIM] = 32;
    fails(heads, "ends early");
    sn_call columns = call(SN_F32, 64, 16 * 64 * 4);
    columns.attrs.i[SN_READ_STRIDE] = 64;
    fails(columns, "ends early");
    sn_files none;
    assert_int_equal(sn_files_open((sn_program_file[]){{path}, {"/no/such/file"}}, 2, &none), SN_ERR_FILE);
    assert_non_null(strstr(sn_error_text(), "/no/such/file"));
    assert_int_equal(none.count, 0);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        int slot;
        int64_t value;
        const char *text;
    } cases[] = {{SN_READ_FILE, -1, "no such region"},           {SN_READ_OFFSET, -1, "no such region"},
                 {SN_READ_OFFSET, INT64_MAX, "no such region"},  {SN_READ_BYTES, 0, "no such region"},
                 {SN_READ_BYTES, 59, "no whole number of rows"}, {SN_READ_DTYPE, SN_DTYPE_COUNT, "is no form"},
                 {SN_READ_COLUMNS, -1, "no such region"},        {SN_READ_HEAD_DIM, 2, "no whole heads"},
                 {SN_READ_HEAD_DIM, 3, "no whole heads"},        {SN_READ_STRIDE, 8, "no transpose of this"},
                 {SN_READ_STRIDE, -4, "no transpose of this"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        sn_call c = call(SN_F32, 5, 60);
        c.attrs.i[cases[k].slot] = cases[k].value;
        op_refused(&sn_op_read, &c, 0, cases[k].text);
    }
    sn_call vector = call(SN_Q8_0, 0, 35);
    op_refused(&sn_op_read, &vector, 0, "no whole number of elements");
    sn_call into = call(SN_F32, 5, 60);
    into.in[0] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(5, 3)};
    op_refused(&sn_op_read, &into, 1, "[5,3]");
    into.in[0] = (sn_tensor){.dtype = SN_F16, .shape = sn_shape_of(3, 5)};
    op_refused(&sn_op_read, &into, 1, "f16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_as_they_lie),    cmocka_unit_test(rows_of_heads), cmocka_unit_test(transposed), cmocka_unit_test(parts),
        cmocka_unit_test(files_that_end_early), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
