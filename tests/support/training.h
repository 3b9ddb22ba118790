/* sn_train on the tiny models of tests/golden, and what it wrote. */
#ifndef SN_TESTS_TRAINING_H
#define SN_TESTS_TRAINING_H

#include "engine/train.h"
#include "support/tiny.h"

#define TINY_LLAMA SNUG_SOURCE_DIR "/tests/golden/model_files/llama" /* vocabulary 24, tied, no biases */
#define TINY_GPT2 SNUG_SOURCE_DIR "/tests/golden/model_files/gpt2"

enum { TRAINED_MOST = 64 };

typedef struct trained {
    sn_status status;
    sn_train_summary summary;
    char error[512];
    int steps; /* lines of metrics.jsonl with a loss, in order */
    int64_t step[TRAINED_MOST];
    double loss[TRAINED_MOST], norm[TRAINED_MOST], rate[TRAINED_MOST];
} trained;

/* A folder for all files of a test program; training_close, the end of a group of tests, removes it. Quiet: warnings too are kept from the
 * terminal and counted. */
void training_open(const char *name);
int training_close(void **state);
int training_warnings(void);                                                              /* since the last call */
const char *training_path(const char *format, ...) __attribute__((format(printf, 1, 2))); /* below the folder; eight at a time */

/* Rows of 4 to 12 ids in 3 .. 23, the first label of each masked; `rows` of them. */
void training_rows(const char *path, int rows);
void training_text(const char *path, const char *text);

/* Trains with one thread, 16 tokens a row, these options and `out` below the folder; reads metrics.jsonl. */
void training_run(const char *model, const char *options, const char *data, const char *out, const sn_train_hooks *hooks, trained *t);

/* The same at a constant rate of 1e-3, with an epsilon that keeps small gradients' noise small: what runs over unlike ranks are compared
 * by. Fails unless it ends well. */
void training_steadily(const char *model, const char *options, const char *data, const char *out, trained *t);

/* SHA-256 of a file. */
void training_digest(const char *path, char hex[65]);

/* Fails unless two safetensors files hold the same tensors, all in f32, within |a - b| / (1 + |b|). */
void training_near(const char *one, const char *other, double within);

/* A copy of the model whose weight `name` was changed by fn, as a folder. */
void training_altered(const char *model, const char *folder, const char *name, void (*fn)(float *x, int64_t n));

#endif
