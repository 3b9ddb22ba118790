#include "engine/export_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/convert.h"

enum { GATHER_BYTES = 16384 }; /* of a piece of a stored row: 256-element blocks at both ends */

bool sn_export_can_encode(sn_dtype form) {
    float zeros[256] = {0};
    char encoded[4 * 256];
    return sn_from_f32(form, zeros, 256, encoded) == SN_OK;
}

sn_dtype sn_export_source_form(const sn_export *v, const sn_export_item *item) {
    (void)v;
    return item->file ? item->file->dtype : SN_F32;
}

bool sn_export_is_verbatim(const sn_export *v, const sn_export_item *item) {
    return v->model->has_weights && v->model->files.is_gguf && item->file && !item->adapted && item->form == item->file->dtype &&
           item->flipped == item->file->transposed;
}

void sn_export_count(const sn_export_item *item, sn_export_report *report) {
    int64_t elements = 1, columns;
    for (int i = 0; i < item->name.shape.rank; i++) elements *= item->name.shape.d[i];
    columns = item->flipped ? item->name.shape.d[0] : item->name.shape.d[item->name.shape.rank - 1];
    size_t row = 0;
    sn_dtype_row_bytes(item->form, columns, &row);
    report->tensors++;
    report->elements += (uint64_t)elements;
    report->bytes += (uint64_t)(elements / columns) * row;
    report->adapted += item->adapted;
}

/* The shape of an item as it is written. */
static void extents(const sn_export_item *item, int64_t *rows, int64_t *columns) {
    const sn_shape *s = &item->name.shape;
    *rows = s->rank == 1 ? 1 : s->d[item->flipped];
    *columns = s->d[s->rank == 1 ? 0 : !item->flipped];
}

/* Reads rows that the file stores as columns: of every stored row the elements [row0, row0 + n), to f32. */
static sn_status gather_file(sn_export *v, const sn_model_tensor *t, int64_t row0, int64_t n, char *piece, float *out) {
    int64_t block = sn_dtypes[t->dtype].block, low = row0 / block * block, high = (row0 + n + block - 1) / block * block;
    if (high > v->rows) high = v->rows;
    size_t stored_row = (size_t)(v->rows / block) * (size_t)sn_dtypes[t->dtype].bytes;
    for (int64_t at = low; at < high;) {
        int64_t m = high - at;
        int64_t most = GATHER_BYTES / 8 / block * block;
        if (m > most) m = most;
        float *values = (float *)(void *)(piece + GATHER_BYTES / 2);
        size_t bytes = (size_t)(m / block) * (size_t)sn_dtypes[t->dtype].bytes;
        for (int64_t s = 0; s < v->columns; s++) {
            SN_TRY(sn_model_files_read_stored(&v->model->files, t,
                                              (uint64_t)s * stored_row + (uint64_t)(at / block) * (uint64_t)sn_dtypes[t->dtype].bytes,
                                              piece, bytes));
            sn_to_f32(t->dtype, piece, m, values);
            for (int64_t i = 0; i < m; i++)
                if (at + i >= row0 && at + i < row0 + n) out[(at + i - row0) * v->columns + s] = values[i];
        }
        at += m;
    }
    return SN_OK;
}

static sn_status run_value(const sn_export *v, sn_pid p, const char **data, sn_dtype *form) {
    const sn_job *job = v->session->job;
    sn_pid master = sn_job_master(job, p), from = master == SN_NONE || sn_job_turn(job, master) >= 0 ? p : master;
    *form = job->persistent[from].rest.form;
    const void *whole;
    SN_TRY(sn_session_whole(v->session, from, &whole));
    *data = whole;
    return *data ? SN_OK : sn_fail(SN_ERR_USAGE, "%s: the device has no memory to export from", job->persistent[p].name);
}

static sn_status gather_run(const sn_export *v, const char *data, sn_dtype form, int64_t row0, int64_t n, float *out) {
    size_t size = (size_t)sn_dtypes[form].bytes;
    if (sn_dtypes[form].block != 1)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: a quantised value of the run cannot be transposed", v->item->name.hf);
    for (int64_t s = 0; s < v->columns; s++)
        for (int64_t i = 0; i < n; i++) sn_to_f32(form, data + (size_t)(s * v->rows + row0 + i) * size, 1, &out[i * v->columns + s]);
    return SN_OK;
}

typedef struct work {
    const sn_export *v;
    const char *raw; /* NULL: values are in f32 already */
    size_t raw_row, out_row;
    sn_dtype from;
    int64_t row0, n;
    float *values;
    char *out;
    bool *too_large; /* of each row */
} work;

enum { ROWS_A_TASK = 8, MOST_ROWS = 4096 };

static void add_scaled(float *restrict y, const float *restrict x, float a, int64_t n) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8)
        for (int k = 0; k < 8; k++) y[j + k] += a * x[j + k];
    for (; j < n; j++) y[j] += a * x[j];
}

static void finish_rows(void *context, int64_t task, int member) {
    const work *w = context;
    const sn_export *v = w->v;
    const sn_export_delta *d = &v->delta;
    int64_t end = (task + 1) * ROWS_A_TASK < w->n ? (task + 1) * ROWS_A_TASK : w->n;
    (void)member;
    for (int64_t r = task * ROWS_A_TASK; r < end; r++) {
        float *row = w->values + r * v->columns;
        if (w->raw) sn_to_f32(w->from, w->raw + (size_t)r * w->raw_row, v->columns, row);
        for (int64_t k = 0; k < d->rank; k++)
            add_scaled(row, d->basis + k * v->columns, d->scale * d->coefficient[(w->row0 + r) * d->row_step + k * d->k_step], v->columns);
        bool large = false;
        if (v->item->form == SN_F16)
            for (int64_t j = 0; j < v->columns; j++) large |= fabsf(row[j]) >= 65520 && isfinite(row[j]);
        w->too_large[r] = large;
        if (v->item->form != SN_F32) sn_from_f32(v->item->form, row, v->columns, w->out + (size_t)r * w->out_row);
    }
}

/* Puts the raw rows, or their f32 values, in place. */
static sn_status fetch(sn_export *v, work *w, char *raw) {
    const sn_export_item *item = v->item;
    const sn_model_tensor *t = item->file;
    bool vector = item->name.shape.rank == 1;
    if (!t) {
        const char *data;
        SN_TRY(run_value(v, item->run, &data, &w->from));
        if (item->flipped) return gather_run(v, data, w->from, w->row0, w->n, w->values);
        sn_dtype_row_bytes(w->from, v->columns, &w->raw_row);
        w->raw = data + (size_t)w->row0 * w->raw_row;
        return SN_OK;
    }
    if (!vector && t->transposed != item->flipped) return gather_file(v, t, w->row0, w->n, raw, w->values);
    size_t bytes = (size_t)w->n * w->raw_row;
    w->raw = raw;
    if (t->transposed) return sn_model_files_read_stored(&v->model->files, t, (uint64_t)w->row0 * w->raw_row, raw, bytes);
    return sn_model_files_read(&v->model->files, t, vector ? 0 : w->row0, vector ? v->columns : w->n, raw, bytes);
}

sn_status sn_export_tile(sn_export *v, int64_t row0, int64_t *n, const char **rows) {
    const sn_export_item *item = v->item;
    work w = {.v = v, .from = sn_export_source_form(v, item), .row0 = row0};
    bool too_large[MOST_ROWS];
    size_t values_row = (size_t)v->columns * sizeof(float);
    bool gathered = item->file && item->name.shape.rank > 1 && item->file->transposed != item->flipped;
    if (!gathered && item->file && !sn_dtype_row_bytes(w.from, v->columns, &w.raw_row))
        return sn_fail(SN_ERR_SHAPE, "%s: rows of %lld elements are no whole number of blocks", item->name.hf, (long long)v->columns);
    if (!sn_dtype_row_bytes(item->form, v->columns, &w.out_row))
        return sn_fail(SN_ERR_SHAPE, "%s: rows of %lld elements do not fit form %s", item->name.hf, (long long)v->columns,
                       sn_dtype_name(item->form));
    size_t each = w.raw_row + values_row + w.out_row, fixed = GATHER_BYTES + 3 * 64;
    if (fixed + each > v->stage_bytes)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: a row of %zu bytes does not fit the staging area", item->name.hf, each);
    w.n = (int64_t)((v->stage_bytes - fixed) / each);
    if (w.n > v->rows - row0) w.n = v->rows - row0;
    if (w.n > MOST_ROWS) w.n = MOST_ROWS;
    char *raw = v->stage;
    w.values = (float *)(void *)(raw + sn_round_up((size_t)w.n * w.raw_row + GATHER_BYTES, 64));
    w.out = (char *)w.values + sn_round_up((size_t)w.n * values_row, 64);
    w.too_large = too_large;
    SN_TRY(fetch(v, &w, raw));
    sn_team_run(v->team, (w.n + ROWS_A_TASK - 1) / ROWS_A_TASK, finish_rows, &w);
    for (int64_t r = 0; r < w.n; r++)
        if (too_large[r])
            return sn_fail(SN_ERR_NUMERIC, "%s: row %lld holds a value beyond f16's range: export as bf16 or f32", item->name.hf,
                           (long long)(row0 + r));
    *n = w.n;
    *rows = item->form == SN_F32 ? (const char *)w.values : w.out;
    return SN_OK;
}

static void drop_delta(sn_export *v) {
    for (size_t i = 0; i < 3; i++) sn_free(v->delta.owned[i]);
    v->delta = (sn_export_delta){0};
}

/* One part as f32: where it lies in the run, or a copy. *rank 0: not known yet. */
static sn_status read_part(sn_export *v, sn_adapter_part part, int64_t rows, int64_t columns, float **owned, const float **out,
                           int64_t *rank) {
    const char *weight = v->item->name.hf;
    char file_name[SN_ADAPTER_NAME], found[96];
    const sn_st_tensor *t = v->has_adapter ? sn_adapter_find(&v->adapter, weight, part) : NULL;
    sn_pid p = v->has_adapter ? SN_NONE : sn_job_adapter(v->session->job, sn_job_find(v->session->job, weight), part);
    if (!t && p == SN_NONE) return sn_fail(SN_ERR_INTERNAL, "%s: a part of its adapter is gone", weight);
    const char *name = t ? (sn_adapter_tensor_name(weight, part, file_name) ? file_name : weight) : v->session->job->persistent[p].name;
    if (p != SN_NONE) v->delta.scale = v->session->job->persistent[p].adapter_scale;
    else v->delta.scale = v->adapter.scale;
    const sn_shape *shape = t ? &t->shape : &v->session->job->persistent[p].shape;
    if (*rank == 0 && shape->rank == 2) *rank = shape->d[part == SN_ADAPTER_UP];
    sn_shape wanted = sn_shape_of(rows ? rows : *rank, columns ? columns : *rank);
    if (!sn_shape_equal(shape, &wanted) || *rank < 1)
        return sn_fail(SN_ERR_SHAPE, "%s is %s: it does not fit %s", name, sn_shape_text(shape, found), weight);
    const char *data = NULL;
    sn_dtype form = t ? t->dtype : SN_F32;
    if (!t) SN_TRY(run_value(v, p, &data, &form));
    if (!t && form == SN_F32) return *out = (const float *)(const void *)data, SN_OK;
    if (!sn_dtype_is_float(form)) return sn_fail(SN_ERR_UNSUPPORTED, "%s has form %s", name, sn_dtype_name(form));
    int64_t n = shape->d[0] * shape->d[1];
    size_t size = (size_t)sn_dtypes[form].bytes;
    if (!(*owned = sn_alloc((size_t)n * sizeof(float)))) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a factor", name);
    *out = *owned;
    for (int64_t at = 0; at < n;) {
        int64_t m = n - at < (int64_t)(v->stage_bytes / 4) ? n - at : (int64_t)(v->stage_bytes / 4);
        if (t) SN_TRY(sn_st_read(&v->adapter.tensors, t, (uint64_t)at * size, v->stage, (size_t)m * size));
        sn_to_f32(form, t ? v->stage : data + (size_t)at * size, m, *owned + at);
        at += m;
    }
    return SN_OK;
}

sn_status sn_export_begin(sn_export *v, size_t index) {
    sn_export_item *item = v->item = &v->items[index];
    sn_export_delta *d = &v->delta;
    const float *a, *b;
    drop_delta(v);
    extents(item, &v->rows, &v->columns);
    if (!item->adapted) return SN_OK;
    bool conv1d = item->name.transposed; /* the folder's weight is [in,out] */
    int64_t in = item->name.shape.d[!conv1d], out = item->name.shape.d[conv1d], rank = 0;
    SN_TRY(read_part(v, SN_ADAPTER_DOWN, 0, in, &d->owned[0], &a, &rank));
    SN_TRY(read_part(v, SN_ADAPTER_UP, out, 0, &d->owned[1], &b, &rank));
    d->rank = rank;
    if (conv1d == item->flipped) { /* rows are of [out,in]: row o of B times A */
        d->coefficient = b;
        d->row_step = rank;
        d->k_step = 1;
        d->basis = a;
        return SN_OK;
    }
    float *turned = d->owned[2] = sn_alloc((size_t)(rank * out) * sizeof(float)); /* rows are of [in,out]: A[:, i] times B^T */
    if (!turned) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a factor", item->name.hf);
    for (int64_t k = 0; k < rank; k++)
        for (int64_t o = 0; o < out; o++) turned[k * out + o] = b[o * rank + k];
    d->coefficient = a;
    d->row_step = 1;
    d->k_step = in;
    d->basis = turned;
    return SN_OK;
}
