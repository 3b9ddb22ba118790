/* Training data: a text or JSON-lines file to batches of token ids with labels.
 *
 *     sn_dataset_options o = {.path = "chats.jsonl", .cutoff_len = 2048, .encoder = &encoder, .chat_template = t};
 *     SN_TRY(sn_dataset_open(&o, &d));                               builds or finds chats.jsonl.snug-idx
 *     sn_loader_options l = {.dataset = d, .micro_rows = 4, .accumulation = 2, .ranks = 1, .shuffle = true, .seed = 42};
 *     SN_TRY(sn_loader_open(&l, &loader));
 *     sn_data_cursor at = {0};                                       saved in checkpoints
 *     SN_TRY(sn_loader_step(loader, &at, &step));                    which rows, and how many labels in all of them
 *     SN_TRY(sn_loader_fill(loader, micro, rank, &batch));           ids, positions, seq_start, labels of one micro-batch
 *
 * A file is one of
 *   - plain text (any name but .json, .jsonl, .ndjson): one stream, cut into windows of cutoff_len tokens; each token but the
 *     first is a label once; the stream ends with EOS;
 *   - JSON lines, or one JSON array of rows, where each row is an object with one of
 *       text                       a document; EOS is added; all of it carries loss
 *       messages                   OpenAI: [{role, content, ...}], with tools beside it
 *       conversations              sharegpt: [{from: system|human|gpt|..., value}], with system and tools beside it
 *       instruction, input, output alpaca; with a chat template it is a conversation, else the Alpaca prompt is used
 *       input_ids, labels          ready-made; labels unshifted as in transformers, -100 is ignored; without labels: all
 *     In conversations what the assistant says and its end-of-turn token carry loss, in alpaca rows the output and its EOS.
 * Rows longer than cutoff_len are cut at their end. Rows without any label left, and empty rows (no text, or fewer than two
 * tokens of it), are left out and counted.
 *
 * Memory does not grow with the file: rows are read when needed; their places, token and label counts stand in an index on disk,
 * which is built once, streaming, and again when the file, the tokenizer, the template or cutoff_len changes, or it is damaged. */
#ifndef SN_IO_DATASET_H
#define SN_IO_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "io/chat_template.h"
#include "io/encoder.h"

enum { SN_IGNORE_LABEL = -100, SN_MAX_ROW_BYTES = 256 << 20 };

typedef struct sn_dataset sn_dataset;
typedef struct sn_loader sn_loader;

typedef struct sn_dataset_options {
    const char *path;
    const char *index_path;                /* NULL: path + ".snug-idx" */
    int64_t cutoff_len;                    /* tokens of a row, 2 or more */
    const sn_encoder *encoder;             /* NULL: only rows of input_ids can be read */
    const sn_chat_template *chat_template; /* NULL: rows with messages or conversations are refused */
    const char *bos_token, *eos_token;     /* texts that the template may use; NULL: undefined */
    bool escape_special; /* control tokens written in `text` rows stay text; else they are parsed, as reference tokenizers do.
                            In plain text files and in conversations they always stay text. */
    int threads;         /* that build an index; 0: 1 */
} sn_dataset_options;

typedef struct sn_dataset_info {
    uint64_t seen;      /* rows of the file */
    uint64_t rows;      /* of them used; of plain text: windows */
    uint64_t empty;     /* left out: no text, or fewer than two tokens of it */
    uint64_t no_loss;   /* left out: no label within cutoff_len */
    uint64_t truncated; /* used, but cut */
    uint64_t tokens, labels;
    uint64_t identity; /* of rows and counts: a checkpoint's cursor fits this dataset only */
    bool built;        /* the index was made by this call */
} sn_dataset_info;

/* SN_ERR_DATA names path:line for a malformed row, and says why when no row is left. Options are copied; what they point to must
 * outlive the dataset. When several ranks share the file, one of them opens it first, so that the index is built once. */
sn_status sn_dataset_open(const sn_dataset_options *o, sn_dataset **out);
void sn_dataset_close(sn_dataset *d);
const sn_dataset_info *sn_dataset_get_info(const sn_dataset *d);
int64_t sn_dataset_cutoff(const sn_dataset *d);

/* One row ready for a model: labels[t] is what ids[t] has to predict (already shifted), or SN_IGNORE_LABEL. */
typedef struct sn_sample {
    sn_ids ids, labels;
    /* kept between calls */
    sn_str text;
    sn_ids chunk;
    uint64_t chunk_index; /* of `chunk`, plus 1 */
} sn_sample;
void sn_sample_free(sn_sample *s);

/* Overwrites *s (zero-initialised, or from an earlier call). One sn_sample belongs to one thread. */
sn_status sn_dataset_read(const sn_dataset *d, uint64_t row, sn_sample *s);
/* Tokens and labels of a row, from the index. */
sn_status sn_dataset_count(const sn_dataset *d, uint64_t row, uint32_t *tokens, uint32_t *labels);

/* Position of i in a random order of n that `seed` and `epoch` choose: a bijection of [0, n), in constant memory.
 * A Feistel network over Philox (Luby and Rackoff, 1988), walked until the value is below n (Black and Rogaway, 2002). */
uint64_t sn_shuffle(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t i);

typedef enum sn_data_part { SN_DATA_ALL, SN_DATA_TRAIN, SN_DATA_EVAL } sn_data_part;

typedef struct sn_loader_options {
    const sn_dataset *dataset;
    int64_t micro_rows;   /* rows of cutoff_len tokens of one micro-batch of one rank */
    int64_t accumulation; /* micro-batches a step; 0: 1 */
    int64_t ranks;        /* data-parallel ranks; 0: 1 */
    bool packing;         /* several samples a row */
    bool shuffle;
    uint64_t seed;
    sn_data_part part;    /* SN_DATA_TRAIN and _EVAL split off a random eval_fraction, the same for every seed */
    double eval_fraction; /* of the rows, rounded up */
} sn_loader_options;

/* Where training stands. All zero at the start; saved in checkpoints. Without packing it follows from batch_step alone. */
typedef struct sn_data_cursor {
    uint64_t batch_step;
    uint64_t epoch, position; /* the next sample: its place in the epoch's order */
} sn_data_cursor;

typedef struct sn_step {
    int64_t label_tokens; /* of the whole step, over all micro-batches and ranks */
    int64_t tokens, samples;
    uint64_t epoch;
    bool ends_epoch; /* a step never reaches into the next epoch, so the last one of an epoch may be smaller */
} sn_step;

/* Arrays of micro_rows * cutoff_len elements that the caller owns. Row r occupies [r * cutoff_len, (r + 1) * cutoff_len). */
typedef struct sn_batch {
    int32_t *ids;
    int32_t *positions; /* from 0 in each sample */
    int32_t *seq_start; /* index of the first token of the sample */
    int32_t *labels;    /* shifted, SN_IGNORE_LABEL where nothing is to be learnt */
    int64_t label_tokens, tokens, samples;
} sn_batch;

sn_status sn_loader_open(const sn_loader_options *o, sn_loader **out);
void sn_loader_close(sn_loader *l);
uint64_t sn_loader_rows(const sn_loader *l); /* samples an epoch */

/* Chooses the samples of the step at *at and moves *at behind it. Reads the index only; the same on every rank. */
sn_status sn_loader_step(sn_loader *l, sn_data_cursor *at, sn_step *step);

/* Fills one micro-batch of the last step chosen. Row r of micro-batch m of rank k is row (m * ranks + k) * micro_rows + r of the
 * step. Padding (the ends of rows, and whole rows of a small last step) has id 0 and position 0, and is its own sequence. */
sn_status sn_loader_fill(sn_loader *l, int64_t micro, int64_t rank, sn_batch *b);

/* Samples of one micro-batch of the last step chosen, over all ranks. */
int64_t sn_loader_samples(const sn_loader *l, int64_t micro);

/* The cursor before step `batch_step`, and the number of steps of an epoch. With packing both walk over the index. */
sn_status sn_loader_seek(sn_loader *l, uint64_t batch_step, sn_data_cursor *at);
sn_status sn_loader_steps(sn_loader *l, uint64_t epoch, uint64_t *steps);

#endif
