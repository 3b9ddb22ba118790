#include "ops/read/read.h"

#include "base/mem.h"
#include "ops/rules.h"

static sn_status refuse(const sn_call *c, const char *why) {
    const int64_t *i = c->attrs.i;
    return sn_fail(SN_ERR_SHAPE, "read: %s (file %lld, offset %lld, %lld bytes, %lld columns, head_dim %lld, stride %lld)", why,
                   (long long)i[SN_READ_FILE], (long long)i[SN_READ_OFFSET], (long long)i[SN_READ_BYTES], (long long)i[SN_READ_COLUMNS],
                   (long long)i[SN_READ_HEAD_DIM], (long long)i[SN_READ_STRIDE]);
}

/* [N] or [N,K] of a whole number of rows that take exactly `bytes`. */
static sn_status shape_of(const sn_call *c, sn_shape *out) {
    const int64_t *i = c->attrs.i;
    int64_t form = i[SN_READ_DTYPE], columns = i[SN_READ_COLUMNS], bytes = i[SN_READ_BYTES], end;
    size_t row;
    if (form < 0 || form >= SN_DTYPE_COUNT) return sn_fail(SN_ERR_SHAPE, "read: dtype %lld is no form", (long long)form);
    if (i[SN_READ_FILE] < 0 || i[SN_READ_OFFSET] < 0 || bytes < 1 || columns < 0 || __builtin_add_overflow(i[SN_READ_OFFSET], bytes, &end))
        return refuse(c, "no such region of a file");
    const sn_dtype_info *d = &sn_dtypes[form];
    if (!columns) {
        if (bytes % d->bytes) return refuse(c, "no whole number of elements");
        *out = sn_shape_of(bytes / d->bytes * d->block);
        return SN_OK;
    }
    if (!sn_dtype_row_bytes((sn_dtype)form, columns, &row) || bytes % (int64_t)row) return refuse(c, "no whole number of rows");
    *out = sn_shape_of(bytes / (int64_t)row, columns);
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    sn_shape x;
    int64_t head_dim = c->attrs.i[SN_READ_HEAD_DIM], stride = c->attrs.i[SN_READ_STRIDE];
    sn_dtype form = (sn_dtype)c->attrs.i[SN_READ_DTYPE];
    SN_TRY(shape_of(c, &x));
    bool blocks = sn_dtypes[form].block > 1, vector = x.rank == 1;
    if (head_dim < 0 || head_dim % 2 || (head_dim && (x.d[0] % head_dim || (vector && blocks))))
        return refuse(c, "rows are no whole heads");
    if (stride < 0 || (stride && (head_dim || vector || blocks || stride / sn_dtypes[form].bytes < x.d[0])))
        return refuse(c, "no transpose of this");
    sn_set_no_out(c, 0);
    if (!sn_has(c, 0)) {
        sn_set_out(c, 0, form, x);
        return SN_OK;
    }
    SN_TRY(sn_need_form("read", c, 0, "into", form));
    return sn_need_shape("read", c, 0, "into", &x);
}

/* Nothing but the file says what it gives, so a rank may have any part of it. */
static const char *axes(const sn_call *c) {
    bool vector = !c->attrs.i[SN_READ_COLUMNS];
    if (sn_has(c, 0)) return vector ? "r->" : "rk->";
    return vector ? "->r" : "->rk";
}

static sn_cost cost(const sn_call *c) { return (sn_cost){.bytes = (double)c->attrs.i[SN_READ_BYTES]}; }

const sn_op sn_op_read = {
    .name = "read",
    .min_in = 0,
    .max_in = 1,
    .n_out = 1,
    .mutates = 1,
    .into = 1,
    .int_attrs = {"file", "offset", "bytes", "dtype", "columns", "head_dim", "stride", "first_row", "first_column", "parts"},
    .begins = {{.attr = 1 + SN_READ_FIRST_ROW, .operand = SN_MAX_IN, .dim = 0},
               {.attr = 1 + SN_READ_FIRST_COLUMN, .operand = SN_MAX_IN, .dim = 1}},
    .axes = axes,
    .shape = shape,
    .cost = cost,
    .kernels = {sn_read_cpu}};
