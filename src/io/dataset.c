/* Opening a dataset, and reading its rows by number. */
#include "io/dataset.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/dataset_impl.h"

static sn_status no_tokenizer(const sn_encoder *e, const char *text, size_t n, unsigned flags, sn_ids *out) {
    (void)e, (void)text, (void)n, (void)flags, (void)out;
    return sn_fail(SN_ERR_USAGE, "the model has no tokenizer: its data must be rows of input_ids");
}

static bool nothing_special(const sn_encoder *e, int32_t id) {
    (void)e, (void)id;
    return false;
}

/* Stands in where there is none. */
static const sn_encoder no_encoder = {.encode = no_tokenizer, .is_special = nothing_special, .bos = -1, .eos = -1};

static sn_status check_options(const sn_dataset_options *o) {
    if (!o->path) return sn_fail(SN_ERR_USAGE, "a dataset needs a path");
    if (o->cutoff_len < 2 || o->cutoff_len > INT32_MAX / 2)
        return sn_fail(SN_ERR_USAGE, "cutoff_len is %lld, not 2 or more", (long long)o->cutoff_len);
    return SN_OK;
}

static bool is_text(const sn_dataset *d) { return d->header.kind == SN_FILE_TEXT; }

static sn_status summarize(sn_dataset *d) {
    const sn_index_header *h = &d->header;
    sn_dataset_info *i = &d->info;
    uint64_t length = (uint64_t)d->o.cutoff_len;
    i->seen = h->seen;
    i->empty = h->empty;
    i->no_loss = h->no_loss;
    i->truncated = h->truncated;
    i->rows = h->entries;
    i->tokens = h->tokens;
    i->labels = h->labels;
    i->identity = h->entries_hash;
    if (is_text(d)) { /* of n tokens, n - 1 have a next one */
        i->labels = h->tokens > 2 ? h->tokens - 1 : 0;
        i->rows = i->labels / length + (i->labels % length != 0);
    }
    if (!i->rows)
        return sn_fail(SN_ERR_DATA, "%s: nothing to train on: of %llu rows %llu are empty and %llu have no label within cutoff_len %lld",
                       d->path, (unsigned long long)i->seen, (unsigned long long)i->empty, (unsigned long long)i->no_loss,
                       (long long)d->o.cutoff_len);
    if (i->empty) sn_warn("%s: %llu empty rows are left out", d->path, (unsigned long long)i->empty);
    if (i->no_loss)
        sn_warn("%s: %llu rows have no label within cutoff_len %lld and are left out", d->path, (unsigned long long)i->no_loss,
                (long long)d->o.cutoff_len);
    if (i->truncated)
        sn_warn("%s: %llu rows are cut to cutoff_len %lld", d->path, (unsigned long long)i->truncated, (long long)d->o.cutoff_len);
    return SN_OK;
}

sn_status sn_dataset_open(const sn_dataset_options *o, sn_dataset **out) {
    *out = NULL;
    SN_TRY(check_options(o));
    sn_dataset *d = sn_alloc_zero(1, sizeof *d);
    if (!d) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a dataset", o->path);
    d->o = *o;
    d->fd = d->index_fd = -1;
    sn_str index_path = {0};
    sn_str_printf(&index_path, "%s%s", o->index_path ? o->index_path : o->path, o->index_path ? "" : ".snug-idx");
    d->index_path = index_path.data;
    d->path = sn_strdup(o->path);
    if (!d->o.encoder) d->o.encoder = &no_encoder;
    sn_status s = index_path.failed || !d->path ? sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a path", o->path) : SN_OK;
    if (s == SN_OK) s = sn_file_open(d->path, &d->fd, &d->file_size);
    if (s == SN_OK) s = sn_index_open(d);
    if (s == SN_OK) s = summarize(d);
    if (s == SN_OK) *out = d;
    else sn_dataset_close(d);
    return s;
}

void sn_dataset_close(sn_dataset *d) {
    if (!d) return;
    if (d->fd >= 0) close(d->fd);
    if (d->index_fd >= 0) close(d->index_fd);
    sn_free(d->path);
    sn_free(d->index_path);
    sn_free(d);
}

const sn_dataset_info *sn_dataset_get_info(const sn_dataset *d) { return &d->info; }

int64_t sn_dataset_cutoff(const sn_dataset *d) { return d->o.cutoff_len; }

sn_status sn_dataset_count(const sn_dataset *d, uint64_t row, uint32_t *tokens, uint32_t *labels) {
    sn_index_entry e;
    if (is_text(d)) {
        uint64_t length = (uint64_t)d->o.cutoff_len;
        if (row >= d->info.rows) return sn_fail(SN_ERR_INTERNAL, "%s has no row %llu", d->path, (unsigned long long)row);
        uint64_t left = d->info.labels - row * length;
        *tokens = *labels = (uint32_t)(left < length ? left : length);
        return SN_OK;
    }
    SN_TRY(sn_index_entry_at(d, row, &e));
    *tokens = e.tokens;
    *labels = e.labels;
    return SN_OK;
}

static sn_status read_bytes(const sn_dataset *d, const sn_index_entry *e, sn_str *text) {
    static const char zeros[4096];
    sn_str_clear(text);
    for (size_t left = e->size; left && !text->failed;) { /* room for e->size bytes */
        size_t n = left < sizeof zeros ? left : sizeof zeros;
        sn_str_append(text, zeros, n);
        left -= n;
    }
    if (text->failed) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate %u bytes for a row", d->path, e->size);
    return e->size ? sn_file_read_at(d->fd, d->path, e->offset, text->data, e->size) : SN_OK;
}

static sn_status changed(const sn_dataset *d, uint64_t row) {
    return sn_fail(SN_ERR_DATA, "%s: row %llu is not what it was when the index was made", d->path, (unsigned long long)row);
}

/* Tokens of chunk i into s->chunk. */
static sn_status read_chunk(const sn_dataset *d, uint64_t i, const sn_index_entry *e, sn_sample *s) {
    if (s->chunk_index == i + 1) return SN_OK;
    s->chunk_index = 0;
    s->chunk.size = 0;
    SN_TRY(read_bytes(d, e, &s->text));
    SN_TRY(sn_sample_chunk(&d->o, i == 0, i + 1 == d->header.entries, s->text.data, e->size, &s->chunk));
    if (s->chunk.size != e->tokens) return changed(d, i);
    s->chunk_index = i + 1;
    return SN_OK;
}

/* The chunk that holds token `at` of the stream. */
static sn_status find_chunk(const sn_dataset *d, uint64_t at, uint64_t *chunk) {
    uint64_t low = 0, high = d->header.entries;
    sn_index_entry e;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        SN_TRY(sn_index_entry_at(d, middle, &e));
        if (e.first <= at) low = middle;
        else high = middle;
    }
    *chunk = low;
    return SN_OK;
}

static sn_status read_window(const sn_dataset *d, uint64_t row, sn_sample *s) {
    uint32_t tokens, labels;
    uint64_t begin = row * (uint64_t)d->o.cutoff_len, i;
    sn_index_entry e;
    SN_TRY(sn_dataset_count(d, row, &tokens, &labels));
    SN_TRY(find_chunk(d, begin, &i));
    for (uint64_t at = begin; at <= begin + tokens; i++) { /* one more than the window: the last token's label */
        SN_TRY(sn_index_entry_at(d, i, &e));
        SN_TRY(read_chunk(d, i, &e, s));
        for (; at <= begin + tokens && at < e.first + e.tokens; at++) {
            int32_t id = s->chunk.data[at - e.first];
            if (at < begin + tokens) SN_TRY(sn_ids_push(&s->ids, id));
            if (at > begin) SN_TRY(sn_ids_push(&s->labels, id));
        }
    }
    return SN_OK;
}

sn_status sn_dataset_read(const sn_dataset *d, uint64_t row, sn_sample *s) {
    sn_index_entry e;
    sn_row_outcome outcome;
    bool cut;
    char where[320];
    s->ids.size = s->labels.size = 0;
    if (is_text(d)) return read_window(d, row, s);
    SN_TRY(sn_index_entry_at(d, row, &e));
    SN_TRY(read_bytes(d, &e, &s->text));
    snprintf(where, sizeof where, "%.280s:%u", d->path, e.line);
    SN_TRY(sn_sample_make(&d->o, d->header.now, where, s->text.data, e.size, s, &outcome, &cut));
    return outcome == SN_ROW_USED && s->ids.size == e.tokens ? SN_OK : changed(d, row);
}
