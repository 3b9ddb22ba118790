/* Rows to their numbers of tokens and labels, some at a time, by a team. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "io/dataset_impl.h"

/* A batch is full at either; so much of it is in memory at once, and a longer row stands alone in the reader's buffer. */
enum { MOST_ROWS = 1024, MOST_BYTES = 1 << 20, ROWS_A_TASK = 16 };

struct sn_row_counter {
    const sn_dataset *d;
    sn_team *team;
    sn_sample *samples; /* one a member */
    char *text;
    size_t text_size, n;
    sn_counted_row next; /* read, but not taken yet when its text is not NULL */
    sn_counted_row rows[MOST_ROWS];
};

sn_status sn_counter_open(const sn_dataset *d, sn_row_counter **out) {
    sn_row_counter *c = *out = sn_alloc_zero(1, sizeof *c);
    if (!c) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a batch of rows", d->path);
    c->d = d;
    sn_status s = sn_team_open(d->o.threads > 1 ? d->o.threads : 1, NULL, &c->team);
    c->text = sn_alloc(MOST_BYTES);
    c->samples = s == SN_OK ? sn_alloc_zero((size_t)sn_team_size(c->team), sizeof *c->samples) : NULL;
    if (s == SN_OK && (!c->text || !c->samples)) s = sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a batch of rows", d->path);
    if (s != SN_OK) {
        sn_counter_close(c);
        *out = NULL;
    }
    return s;
}

void sn_counter_close(sn_row_counter *c) {
    if (!c) return;
    for (int i = 0; c->samples && i < sn_team_size(c->team); i++) sn_sample_free(&c->samples[i]);
    sn_team_close(c->team);
    sn_free(c->samples);
    sn_free(c->text);
    sn_free(c);
}

/* Moves the reader's current row into the batch, if there is room. */
static bool take(sn_row_counter *c) {
    sn_counted_row *next = &c->next;
    bool alone = next->size > MOST_BYTES;
    if (c->n == MOST_ROWS || (alone ? c->n : next->size > MOST_BYTES - c->text_size)) return false;
    if (!alone) next->text = memcpy(c->text + c->text_size, next->text, next->size);
    c->text_size += alone ? MOST_BYTES : next->size;
    c->rows[c->n++] = *next;
    next->text = NULL;
    return true;
}

static sn_status fill(sn_row_counter *c, sn_row_reader *r) {
    sn_counted_row *next = &c->next;
    c->n = c->text_size = 0;
    do {
        if (c->n && c->rows[0].size > MOST_BYTES) return SN_OK; /* reading on would move it */
        if (!next->text) {
            *next = (sn_counted_row){0};
            SN_TRY(sn_rows_next(r, &next->offset, &next->text, &next->size));
            next->line = r->line;
        }
    } while (next->text && take(c));
    return SN_OK;
}

static sn_status count_row(const sn_dataset *d, sn_sample *s, sn_counted_row *row) {
    char where[320];
    if (d->header.kind == SN_FILE_TEXT) {
        s->ids.size = 0;
        SN_TRY(sn_sample_chunk(&d->o, row->offset == 0, row->offset + row->size == d->file_size, row->text, row->size, &s->ids));
    } else {
        snprintf(where, sizeof where, "%.280s:%llu", d->path, (unsigned long long)row->line);
        SN_TRY(sn_sample_make(&d->o, d->header.now, where, row->text, row->size, s, &row->outcome, &row->truncated));
        for (size_t i = 0; i < s->labels.size; i++) row->labels += s->labels.data[i] != SN_IGNORE_LABEL;
    }
    row->tokens = s->ids.size;
    return SN_OK;
}

static void count_task(void *context, int64_t task, int member) {
    sn_row_counter *c = context;
    size_t end = (size_t)(task + 1) * ROWS_A_TASK < c->n ? (size_t)(task + 1) * ROWS_A_TASK : c->n;
    for (size_t i = (size_t)task * ROWS_A_TASK; i < end; i++) {
        c->rows[i].status = count_row(c->d, &c->samples[member], &c->rows[i]);
        if (c->rows[i].status != SN_OK) return; /* no row behind it is asked for */
    }
}

sn_status sn_counter_next(sn_row_counter *c, sn_row_reader *r, sn_counted_row **rows, size_t *n) {
    char message[1024];
    sn_status read = fill(c, r); /* the rows before a fault of the file come first */
    if (read != SN_OK) snprintf(message, sizeof message, "%s", sn_error_text());
    sn_team_run(c->team, (int64_t)((c->n + ROWS_A_TASK - 1) / ROWS_A_TASK), count_task, c);
    *rows = c->rows;
    for (*n = 0; *n < c->n; ++*n) {
        if (c->rows[*n].status == SN_OK) continue;
        /* A message belongs to the thread that failed: the first such row is made again by this one. Only a lack of memory can
         * have passed meanwhile. */
        sn_status s = count_row(c->d, &c->samples[0], &c->rows[*n]);
        return s != SN_OK ? s : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate for a row", c->d->path);
    }
    return read == SN_OK ? SN_OK : sn_fail(read, "%s", message);
}
