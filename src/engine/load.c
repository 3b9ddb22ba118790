#include "engine/load.h"

#include <string.h>

#include "engine/job.h"
#include "tensor/convert.h"

typedef struct tile {
    const char *raw;
    size_t raw_row;
    int64_t rows, columns;
    sn_dtype from, to;
    char *out;
    size_t out_row;
    float *scratch; /* a row for each task, when neither side is f32 */
} tile;

enum { ROWS_A_TASK = 16 };

static void convert_rows(void *context, int64_t task, int member) {
    const tile *t = context;
    int64_t end = (task + 1) * ROWS_A_TASK < t->rows ? (task + 1) * ROWS_A_TASK : t->rows;
    float *row = t->scratch + (int64_t)member * t->columns;
    for (int64_t r = task * ROWS_A_TASK; r < end; r++) {
        const char *raw = t->raw + (size_t)r * t->raw_row;
        char *out = t->out + (size_t)r * t->out_row;
        if (t->to == SN_F32) {
            sn_to_f32(t->from, raw, t->columns, (float *)(void *)out);
            continue;
        }
        sn_to_f32(t->from, raw, t->columns, row);
        sn_from_f32(t->to, row, t->columns, out);
    }
}

/* Reads tensor t into `out` in another form, by tiles of the staging area. */
static sn_status read_converted(sn_run *run, const sn_model_files *files, const sn_model_tensor *t, sn_dtype form, char *out) {
    uint64_t staging;
    char *stage = sn_run_transient(run, &staging);
    int members = sn_team_size(sn_run_team(run));
    bool vector = t->shape.rank == 1;
    int64_t columns = t->shape.d[t->shape.rank - 1], rows = vector ? 1 : t->shape.d[0];
    size_t raw_row, out_row, scratch = sn_round_up((size_t)columns * sizeof(float) * (size_t)members, 64);
    if (!sn_dtype_row_bytes(t->dtype, columns, &raw_row) || !sn_dtype_row_bytes(form, columns, &out_row))
        return sn_fail(SN_ERR_SHAPE, "%s: rows of %lld elements do not fit form %s", t->name, (long long)columns, sn_dtype_name(form));
    if (staging > SN_STAGING_BYTES) staging = SN_STAGING_BYTES;
    if (scratch + raw_row > staging) return sn_fail(SN_ERR_INTERNAL, "%s: a row of %zu bytes does not fit the staging area", t->name, raw_row);
    int64_t step = (int64_t)((staging - scratch) / raw_row);
    for (int64_t r = 0; r < rows; r += step) {
        int64_t n = rows - r < step ? rows - r : step;
        SN_TRY(sn_model_files_read(files, t, vector ? 0 : r, vector ? columns : n, stage + scratch, (size_t)n * raw_row));
        tile work = {stage + scratch, raw_row, n, columns, t->dtype, form, out + (size_t)r * out_row, out_row, (float *)(void *)stage};
        sn_team_run(sn_run_team(run), (n + ROWS_A_TASK - 1) / ROWS_A_TASK, convert_rows, &work);
    }
    return SN_OK;
}

static sn_status load_value(sn_run *run, const sn_job *job, sn_pid p, const sn_model *model, uint64_t seed) {
    const sn_persistent *e = &job->persistent[p];
    char *data = sn_run_persistent(run, p);
    size_t bytes;
    bool master = e->parent != SN_NONE && sn_job_master(job, e->parent) == p;
    if (!data || (e->class_of != SN_CLASS_WEIGHTS && !master)) return SN_OK; /* arenas start as zeros */
    if (e->source.file < 0) {
        sn_initialise(e, master ? e->parent : p, seed, data);
        return SN_OK;
    }
    const sn_model_tensor *t = &model->files.tensors[e->source.tensor];
    if (!sn_shape_bytes(&t->shape, t->dtype, &bytes)) return sn_fail(SN_ERR_SHAPE, "%s has no valid size", t->name);
    if (t->dtype == e->rest.form) return sn_model_files_read(&model->files, t, 0, t->shape.d[0], data, bytes);
    return read_converted(run, &model->files, t, e->rest.form, data);
}

sn_status sn_load_weights(sn_run *run, const sn_job *job, const sn_model *model, uint64_t seed) {
    for (size_t p = 0; p < job->n_persistent; p++) SN_TRY(load_value(run, job, (sn_pid)p, model, seed));
    return SN_OK;
}
