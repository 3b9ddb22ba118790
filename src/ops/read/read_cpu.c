#include "ops/read/read.h"

#include <string.h>

#include "base/file.h"
#include "program/files.h"
#include "tensor/dtype.h"

static const sn_tensor *result(const sn_call *c) { return sn_has(c, 0) ? &c->in[0] : &c->out[0]; }

/* Bytes of a row; a row of a vector is an element. */
static size_t row_bytes(const sn_tensor *x) { return x->shape.rank == 1 ? (size_t)sn_dtypes[x->dtype].bytes : sn_row_bytes(x); }

static size_t scratch(const sn_call *c, int n_threads) {
    (void)n_threads;
    const sn_tensor *x = result(c);
    if (c->attrs.i[SN_READ_STRIDE]) return (size_t)(x->shape.d[0] * sn_dtypes[x->dtype].bytes);
    return (size_t)c->attrs.i[SN_READ_HEAD_DIM] * row_bytes(x);
}

static sn_status read_at(const sn_call *c, uint64_t from, void *to, size_t bytes) {
    const sn_files *f = c->files;
    int64_t file = c->attrs.i[SN_READ_FILE];
    if (file >= f->count) return sn_fail(SN_ERR_INTERNAL, "the program has no file %lld", (long long)file);
    return sn_file_read_at(f->fds[file], f->list[file].path, (uint64_t)c->attrs.i[SN_READ_OFFSET] + from, to, bytes);
}

/* Row r of the result, which is one of the file's as they lie within a head of head_dim rows. */
static size_t row_in_file(const sn_call *c, size_t r) {
    const size_t head_dim = (size_t)c->attrs.i[SN_READ_HEAD_DIM], half = head_dim / 2, i = head_dim ? r % head_dim : 0;
    r += (size_t)c->attrs.i[SN_READ_FIRST_ROW];
    return head_dim ? r - i + (i < half ? 2 * i : 2 * (i - half) + 1) : r;
}

static int64_t parts_of(const sn_call *c) { return c->attrs.i[SN_READ_PARTS] > 0 ? c->attrs.i[SN_READ_PARTS] : 1; }

/* Some columns of each row, or of each part of it. */
static sn_status read_columns(const sn_call *c, const sn_tensor *x) {
    const sn_dtype_info *d = &sn_dtypes[x->dtype];
    const int64_t parts = parts_of(c);
    const size_t own = sn_row_bytes(x) / (size_t)parts;
    size_t row = 0;
    sn_dtype_row_bytes(x->dtype, c->attrs.i[SN_READ_COLUMNS], &row);
    for (int64_t r = 0; r < x->shape.d[0]; r++)
        for (int64_t k = 0; k < parts; k++) {
            const int64_t column = c->attrs.i[SN_READ_COLUMNS] / parts * k + c->attrs.i[SN_READ_FIRST_COLUMN];
            const uint64_t from = row_in_file(c, (size_t)r) * row + (uint64_t)(column / d->block * d->bytes);
            SN_TRY(read_at(c, from, (char *)x->data + ((size_t)(r * parts + k)) * own, own));
        }
    return SN_OK;
}

static sn_status read_heads(const sn_call *c, const sn_tensor *x) {
    const size_t row = row_bytes(x), head_dim = (size_t)c->attrs.i[SN_READ_HEAD_DIM], half = head_dim / 2, head = head_dim * row;
    const size_t bytes = (size_t)x->shape.d[0] * row, first = (size_t)c->attrs.i[SN_READ_FIRST_ROW] * row;
    const char *stored = c->scratch;
    char *out = x->data;
    for (size_t at = 0; at < bytes; at += head) {
        SN_TRY(read_at(c, first + at, c->scratch, head));
        for (size_t j = 0; j < half; j++) {
            memcpy(out + at + j * row, stored + 2 * j * row, row);
            memcpy(out + at + (half + j) * row, stored + (2 * j + 1) * row, row);
        }
    }
    return SN_OK;
}

static sn_status read_transposed(const sn_call *c, const sn_tensor *x) {
    const size_t size = (size_t)sn_dtypes[x->dtype].bytes, rows = (size_t)x->shape.d[0], columns = (size_t)x->shape.d[1];
    const uint64_t first_row = (uint64_t)c->attrs.i[SN_READ_FIRST_ROW], first = (uint64_t)c->attrs.i[SN_READ_FIRST_COLUMN];
    const size_t parts = (size_t)parts_of(c), part = columns / parts, stored_part = (size_t)c->attrs.i[SN_READ_COLUMNS] / parts;
    const char *stored = c->scratch;
    char *out = x->data;
    for (size_t o = 0; o < columns; o++) {
        const uint64_t column = first + o / part * stored_part + o % part;
        SN_TRY(read_at(c, column * (uint64_t)c->attrs.i[SN_READ_STRIDE] + first_row * size, c->scratch, rows * size));
        for (size_t i = 0; i < rows; i++) memcpy(out + (i * columns + o) * size, stored + i * size, size);
    }
    return SN_OK;
}

static sn_status read_rows(const sn_call *c, const sn_tensor *x) {
    const sn_dtype_info *d = &sn_dtypes[x->dtype];
    const uint64_t first = (uint64_t)c->attrs.i[SN_READ_FIRST_ROW],
                   begin = x->shape.rank == 1 ? first / (uint64_t)d->block * (uint64_t)d->bytes : first * row_bytes(x);
    const size_t parts = x->shape.rank == 1 ? (size_t)parts_of(c) : 1, bytes = sn_tensor_bytes(x) / parts;
    for (size_t k = 0; bytes && k < parts; k++)
        SN_TRY(read_at(c, begin + (uint64_t)c->attrs.i[SN_READ_BYTES] / parts * k, (char *)x->data + k * bytes, bytes));
    return SN_OK;
}

static void run(const sn_call *c) {
    const sn_tensor *x = result(c);
    *c->status = c->attrs.i[SN_READ_STRIDE]                                           ? read_transposed(c, x)
                 : x->shape.rank == 2 && x->shape.d[1] != c->attrs.i[SN_READ_COLUMNS] ? read_columns(c, x)
                 : c->attrs.i[SN_READ_HEAD_DIM]                                       ? read_heads(c, x)
                                                                                      : read_rows(c, x);
}

const sn_kernel sn_read_cpu[] = {{"reference", SN_DEVICE_CPU, 0, NULL, scratch, run}, {0}};
