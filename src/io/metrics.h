/* A run's figures as text: metrics.jsonl, a line a logged step, and summary.json, what the run came to. */
#ifndef SN_IO_METRICS_H
#define SN_IO_METRICS_H

#include <stdint.h>

#include "base/status.h"

typedef enum sn_metric_kind { SN_METRIC_NUMBER, SN_METRIC_INTEGER, SN_METRIC_TEXT } sn_metric_kind;

typedef struct sn_metric {
    const char *name;
    sn_metric_kind kind;
    double number; /* printed so that it reads back to the same bits; null when it is not finite */
    int64_t integer;
    const char *text;
} sn_metric;

static inline sn_metric sn_metric_number(const char *name, double v) { return (sn_metric){name, SN_METRIC_NUMBER, v, 0, 0}; }
static inline sn_metric sn_metric_integer(const char *name, int64_t v) { return (sn_metric){name, SN_METRIC_INTEGER, 0, v, 0}; }
static inline sn_metric sn_metric_text(const char *name, const char *v) { return (sn_metric){name, SN_METRIC_TEXT, 0, 0, v}; }

typedef struct sn_metrics sn_metrics;

/* Opens or makes the file at path. Lines of steps after last_step (0: a fresh run, all of them), and a torn line with
 * all that follows it, are cut off, so that a resumed run's file equals that of a straight one. */
sn_status sn_metrics_open(const char *path, int64_t last_step, sn_metrics **out);
void sn_metrics_close(sn_metrics *m); /* NULL is fine */

/* Appends {"step": N, ...} as one write. Steps never fall. Names used in training: loss, grad_norm, learning_rate,
 * tokens (of labels so far), tokens_per_s, eval_loss. */
sn_status sn_metrics_write(sn_metrics *m, int64_t step, const sn_metric *items, size_t count);

/* Writes all items as one JSON object to path, atomically. */
sn_status sn_summary_write(const char *path, const sn_metric *items, size_t count);

#endif
