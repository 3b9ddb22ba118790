/* What the files of dataset.h share. */
#ifndef SN_IO_DATASET_IMPL_H
#define SN_IO_DATASET_IMPL_H

#include "base/hash.h"
#include "base/team.h"
#include "io/dataset.h"

typedef enum sn_file_kind { SN_FILE_TEXT, SN_FILE_LINES, SN_FILE_ARRAY } sn_file_kind;

/* Walks over a file's rows with one buffer, which holds at least the current row. */
typedef struct sn_row_reader {
    const char *path;
    int fd;
    uint64_t file_size;
    sn_file_kind kind;
    size_t chunk; /* bytes of plain text at a time, about */
    char *buffer;
    size_t capacity, have; /* bytes of the file in the buffer */
    uint64_t at;           /* file offset of buffer[0] */
    size_t next;           /* where in the buffer the next row is looked for */
    uint64_t line;         /* of the current row, from 1 (of an array: its element) */
    bool started, ended;
} sn_row_reader;
sn_status sn_rows_start(sn_row_reader *r, const char *path, int fd, uint64_t file_size, size_t text_chunk);
/* The next row; *text is NULL behind the last. Blank lines are passed over. The text is valid until the next call. */
sn_status sn_rows_next(sn_row_reader *r, uint64_t *offset, const char **text, size_t *size);
void sn_rows_end(sn_row_reader *r);
sn_status sn_file_kind_of(const char *path, int fd, uint64_t size, sn_file_kind *out);

typedef enum sn_row_outcome { SN_ROW_USED, SN_ROW_EMPTY, SN_ROW_NO_LOSS } sn_row_outcome;

/* A row's JSON to ids and shifted labels, cut to cutoff_len. `where` stands in messages. */
sn_status sn_sample_make(const sn_dataset_options *o, int64_t now, const char *where, const char *json, size_t size, sn_sample *s,
                         sn_row_outcome *outcome, bool *truncated);
/* The row when it is an object of flat lists of integers with input_ids among them; else *done is false and *s holds nothing of use.
 * Labels are unshifted; without any, s->labels is empty. */
sn_status sn_sample_ready_made(const char *json, size_t size, sn_sample *s, bool *done, bool *has_labels);
/* A chunk of a plain text to ids, with BOS before the first and EOS after the last. */
sn_status sn_sample_chunk(const sn_dataset_options *o, bool first, bool last, const char *text, size_t size, sn_ids *ids);

/* Counts rows in batches, on o.threads threads; rows keep the order in which they were added. */
typedef struct sn_row_counter sn_row_counter;
typedef struct sn_counted_row {
    const char *text;
    uint64_t offset, line;
    size_t size, tokens, labels;
    sn_status status;
    sn_row_outcome outcome; /* of plain text always SN_ROW_USED */
    bool truncated;
} sn_counted_row;
/* header.kind and header.now of d stand already. d must outlive the counter. */
sn_status sn_counter_open(const sn_dataset *d, sn_row_counter **out);
/* The next rows of the reader, as many as a batch holds, counted; *n is 0 behind the last. When a row fails, the error is the one
 * that reading row by row would meet first. *rows is valid until the next call, their texts are not for use. */
sn_status sn_counter_next(sn_row_counter *c, sn_row_reader *r, sn_counted_row **rows, size_t *n);
void sn_counter_close(sn_row_counter *c);

/* The index: a header, then one entry a row (of plain text: a chunk). */
typedef struct sn_index_entry {
    uint64_t offset; /* in the data file */
    uint64_t first;  /* tokens of all entries before this one */
    uint32_t size;   /* bytes */
    uint32_t tokens, labels;
    uint32_t line; /* low 32 bits, for messages */
} sn_index_entry;

typedef struct sn_index_header {
    char magic[8];
    uint64_t data_size;
    int64_t data_time;      /* modification, ns */
    char data_hash[64];     /* of both ends of the file */
    char settings_hash[64]; /* of everything else that decides the ids */
    int64_t now;            /* what templates see as the present: fixed, so that the ids do not change with the day */
    uint64_t kind, entries, seen, empty, no_loss, truncated, tokens, labels;
    uint64_t entries_hash, header_hash;
} sn_index_header;

struct sn_dataset {
    sn_dataset_options o;
    char *path, *index_path;
    int fd, index_fd;
    uint64_t file_size;
    sn_index_header header;
    sn_dataset_info info;
};

/* Opens a sound index of the data as it is now into d, or builds it. */
sn_status sn_index_open(sn_dataset *d);
sn_status sn_index_entry_at(const sn_dataset *d, uint64_t i, sn_index_entry *e);

#endif
