/* The progress of a long job: one line that is redrawn on a terminal, plain lines anywhere else.
 *
 * Environment: NO_COLOR (set and not empty) switches colours off, FORCE_COLOR on (also off a terminal; "0" is off);
 * without them a terminal whose TERM is not "dumb" has colours. Nothing is allocated. Used by one thread. */
#ifndef SN_ENGINE_PROGRESS_H
#define SN_ENGINE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

enum { SN_PROGRESS_TEXT = 256 };

typedef struct sn_progress {
    int fd;
    bool terminal, color;
    int width;                                           /* columns; asked again at each drawing */
    double drawn;                                        /* time of the last drawing */
    bool shown;                                          /* a line without its end stands on the terminal */
    char head[SN_PROGRESS_TEXT], rest[SN_PROGRESS_TEXT]; /* that line */
} sn_progress;

/* Looks at fd (2 for standard error) and the environment. */
void sn_progress_start(sn_progress *p, int fd);

/* Shows "HEAD  REST", cut to the terminal's width. On a terminal: at most ten times a second, unless it is `important`.
 * Elsewhere: important ones only, a line each. Callers pass important = true for what the log should hold: each logged
 * step, the end. */
void sn_progress_show(sn_progress *p, const char *head, const char *rest, bool important);

/* Ends the line, if one stands there. */
void sn_progress_end(sn_progress *p);

/* A sn_log_fn (context: the sn_progress) that writes messages above the line. */
void sn_progress_log(void *context, sn_log_level level, const char *text);

/* What a training step shows; NaN and 0 leave a field out. */
typedef struct sn_step_report {
    int64_t step, total; /* update steps */
    double loss, grad_norm, learning_rate, tokens_per_s;
    double seconds_left;     /* NaN: unknown */
    uint64_t memory, budget; /* bytes: in use at the peak, allowed */
} sn_step_report;

/* "step 120/1000" and "loss 2.345  lr 3.0e-04  grad 1.02  1234 tok/s  12:34 left  1.20 GiB of 2.00 GiB". */
void sn_step_report_text(const sn_step_report *r, char head[SN_PROGRESS_TEXT], char rest[SN_PROGRESS_TEXT]);

/* "model.gguf" and " 48%  45.2 MiB of 93.8 MiB  12.3 MiB/s  0:04 left"; total 0: unknown. */
void sn_transfer_text(const char *name, uint64_t done, uint64_t total, double seconds, char head[SN_PROGRESS_TEXT],
                      char rest[SN_PROGRESS_TEXT]);

/* "0:07", "12:34", "1:02:03", "3 d 4 h"; "?" for NaN, infinity and negative times. Returns buffer. */
const char *sn_duration_text(double seconds, char buffer[32]);

/* Seconds left when `done` of `total` units took `seconds`; NaN before the first. */
double sn_seconds_left(int64_t done, int64_t total, double seconds);

#endif
