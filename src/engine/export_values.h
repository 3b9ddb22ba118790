/* The values of a model as they leave: from its files, from a run, or with an adapter added, in tiles of any form.
 *
 *     sn_export_open(&v, &source);
 *     for each item: sn_export_begin(&v, i);
 *         for (row = 0; row < rows; row += n) sn_export_tile(&v, row, &n, &bytes);     n rows, encoded
 *     sn_export_close(&v);
 *
 * Only export*.c include this. */
#ifndef SN_ENGINE_EXPORT_VALUES_H
#define SN_ENGINE_EXPORT_VALUES_H

#include "engine/export.h"
#include "io/model_names.h"

typedef struct sn_export_item {
    sn_model_name name;
    const sn_model_tensor *file; /* NULL: from the run */
    sn_pid run;
    bool adapted; /* an adapter is added to it */
    /* As it is written; set by the writer before sn_export_begin. */
    sn_dtype form;
    bool flipped; /* [in,out] is written as [out,in] */
} sn_export_item;

/* W' = W + scale * B A as rows: row r gets the sum over k of coefficient[r * row_step + k * k_step] * basis[k]. */
typedef struct sn_export_delta {
    const float *coefficient, *basis;
    int64_t row_step, k_step, rank;
    float scale;
    float *owned[3]; /* blocks to free */
} sn_export_delta;

typedef struct sn_export {
    const sn_model *model;
    const sn_session *session; /* may be NULL */
    sn_adapter adapter;
    bool has_adapter;       /* an adapter's files, else the session's own adapters */
    sn_model_config config; /* as it is written; owns nothing */
    sn_export_item *items;
    size_t count;
    sn_team *team, *own_team;
    char *stage, *own_stage;
    size_t stage_bytes;
    sn_export_item *item; /* begun */
    sn_export_delta delta;
    int64_t rows, columns; /* of the begun item as it is written; a vector is one row */
} sn_export;

/* session may be NULL, adapter (a folder) too. Threads: of a team of its own when there is no session. */
sn_status sn_export_open(sn_export *v, const sn_model *model, const sn_session *session, const char *adapter, int threads);
void sn_export_close(sn_export *v);

/* The form of the item where it comes from, f32 for a value of the run without a file. */
sn_dtype sn_export_source_form(const sn_export *v, const sn_export_item *item);

/* Whether the item's bytes can be copied from the model's file as they lie there into a GGUF. */
bool sn_export_is_verbatim(const sn_export *v, const sn_export_item *item);

bool sn_export_can_encode(sn_dtype form);

sn_status sn_export_begin(sn_export *v, size_t index);

/* Rows [row0, row0 + *n) of the begun item in its form; *n is how many fit. *rows points into the staging memory, valid
 * until the next call. SN_ERR_NUMERIC when a value does not fit f16. */
sn_status sn_export_tile(sn_export *v, int64_t row0, int64_t *n, const char **rows);

/* Adds the item's size to the report. */
void sn_export_count(const sn_export_item *item, sn_export_report *report);

#endif
