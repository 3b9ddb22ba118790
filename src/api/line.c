/* The line on standard error that shows how far a long job is. One for the process: it has one terminal. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/log.h"
#include "base/system.h"
#include "engine/progress.h"

static sn_progress line;
static bool is_open;
static double started;              /* of the file being fetched */
static char file[SN_PROGRESS_TEXT]; /* its name */

static void open_line(void) {
    if (is_open) return;
    sn_progress_start(&line, 2);
    sn_log_to(sn_progress_log, &line);
    is_open = true;
}

bool snug_progress_line(void *context, const char *name, uint64_t done, uint64_t total) {
    char head[SN_PROGRESS_TEXT], rest[SN_PROGRESS_TEXT];
    (void)context;
    open_line();
    if (strncmp(file, name, sizeof file - 1) != 0) { /* another file */
        started = sn_now();
        snprintf(file, sizeof file, "%s", name);
    }
    sn_transfer_text(name, done, total, sn_now() - started, head, rest);
    sn_progress_show(&line, head, rest, total && done >= total);
    return true;
}

void snug_step_line(void *context, const snug_step *s) {
    char head[SN_PROGRESS_TEXT], rest[SN_PROGRESS_TEXT];
    sn_step_report r = {.step = s->step,
                        .total = s->total,
                        .loss = s->loss,
                        .grad_norm = s->grad_norm,
                        .learning_rate = s->learning_rate,
                        .tokens_per_s = s->tokens_per_s,
                        .seconds_left = s->seconds_left,
                        .memory = s->memory_bytes,
                        .budget = s->planned_bytes};
    (void)context;
    open_line();
    sn_step_report_text(&r, head, rest);
    size_t n = strlen(rest);
    if (s->share_of_peak > 0) snprintf(rest + n, sizeof rest - n, "  %.0f%% of peak", 100 * s->share_of_peak);
    sn_progress_show(&line, head, rest, true);
}

void snug_line_end(void) {
    if (!is_open) return;
    sn_progress_end(&line);
    sn_log_to(NULL, NULL);
    is_open = false;
    file[0] = 0;
}
