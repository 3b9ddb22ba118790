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

static sn_status read_heads(const sn_call *c, char *out, size_t row, size_t bytes) {
    const size_t head_dim = (size_t)c->attrs.i[SN_READ_HEAD_DIM], half = head_dim / 2, head = head_dim * row;
    const char *stored = c->scratch;
    for (size_t at = 0; at < bytes; at += head) {
        SN_TRY(read_at(c, at, c->scratch, head));
        for (size_t j = 0; j < half; j++) {
            memcpy(out + at + j * row, stored + 2 * j * row, row);
            memcpy(out + at + (half + j) * row, stored + (2 * j + 1) * row, row);
        }
    }
    return SN_OK;
}

static sn_status read_transposed(const sn_call *c, const sn_tensor *x) {
    const size_t size = (size_t)sn_dtypes[x->dtype].bytes, rows = (size_t)x->shape.d[0], columns = (size_t)x->shape.d[1];
    const char *stored = c->scratch;
    char *out = x->data;
    for (size_t o = 0; o < columns; o++) {
        SN_TRY(read_at(c, o * (uint64_t)c->attrs.i[SN_READ_STRIDE], c->scratch, rows * size));
        for (size_t i = 0; i < rows; i++) memcpy(out + (i * columns + o) * size, stored + i * size, size);
    }
    return SN_OK;
}

static void run(const sn_call *c) {
    const sn_tensor *x = result(c);
    const size_t bytes = (size_t)c->attrs.i[SN_READ_BYTES];
    *c->status = c->attrs.i[SN_READ_STRIDE]     ? read_transposed(c, x)
                 : c->attrs.i[SN_READ_HEAD_DIM] ? read_heads(c, x->data, row_bytes(x), bytes)
                                                : read_at(c, 0, x->data, bytes);
}

const sn_kernel sn_read_cpu[] = {{"reference", SN_DEVICE_CPU, 0, NULL, scratch, run}, {0}};
