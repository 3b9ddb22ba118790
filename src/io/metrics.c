#include "io/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum { LONGEST_LINE = 8192 };

struct sn_metrics {
    int fd;
    char *path;
    int64_t last_step;
    sn_str line; /* kept, so that a steady state allocates nothing */
};

static void add_number(sn_str *s, double v) {
    char text[40];
    if (!isfinite(v)) {
        sn_str_add(s, "null");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) { /* the shortest text with the same bits */
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    sn_str_add(s, text);
}

static void add_item(sn_str *s, const sn_metric *m) {
    sn_str_json(s, m->name, strlen(m->name));
    sn_str_add(s, ": ");
    switch (m->kind) {
    case SN_METRIC_NUMBER: add_number(s, m->number); break;
    case SN_METRIC_INTEGER: sn_str_printf(s, "%lld", (long long)m->integer); break;
    case SN_METRIC_TEXT: sn_str_json(s, m->text, strlen(m->text)); break;
    }
}

/* The step of one of our own whole lines. */
static bool step_of_line(const char *line, long long *step) {
    size_t n = strlen(line);
    int used = 0;
    return n > 2 && !strcmp(line + n - 2, "}\n") && sscanf(line, "{\"step\": %lld%n", step, &used) == 1 &&
           (line[used] == ',' || line[used] == '}');
}

/* Bytes of the lines to keep: the whole lines before the first of a step after last_step. Lines are in step order. */
static sn_status find_cut(const char *path, int64_t last_step, uint64_t *keep) {
    char line[LONGEST_LINE];
    long long step;
    *keep = 0;
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? SN_OK : sn_fail(SN_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    for (long n = 1; fgets(line, sizeof line, f); n++) {
        if (!step_of_line(line, &step)) {
            sn_warn("%s:%ld: not a whole line of metrics; it and what follows is removed", path, n);
            break;
        }
        if (step > last_step) break;
        *keep += strlen(line);
    }
    bool bad = ferror(f);
    fclose(f);
    return bad ? sn_fail(SN_ERR_FILE, "cannot read %s", path) : SN_OK;
}

sn_status sn_metrics_open(const char *path, int64_t last_step, sn_metrics **out) {
    uint64_t keep;
    *out = NULL;
    SN_TRY(find_cut(path, last_step, &keep));
    sn_metrics *m = sn_alloc_zero(1, sizeof *m);
    if (m) m->path = sn_strdup(path);
    if (!m || !m->path) {
        sn_free(m);
        return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot open", path);
    }
    m->last_step = last_step;
    m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    sn_status s = SN_OK;
    if (m->fd < 0) s = sn_fail(SN_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    else if (ftruncate(m->fd, (off_t)keep)) s = sn_fail(SN_ERR_FILE, "cannot truncate %s: %s", path, strerror(errno));
    if (s != SN_OK) sn_metrics_close(m);
    else *out = m;
    return s;
}

void sn_metrics_close(sn_metrics *m) {
    if (!m) return;
    if (m->fd >= 0) close(m->fd);
    sn_str_free(&m->line);
    sn_free(m->path);
    sn_free(m);
}

sn_status sn_metrics_write(sn_metrics *m, int64_t step, const sn_metric *items, size_t count) {
    if (step < m->last_step)
        return sn_fail(SN_ERR_INTERNAL, "%s: step %lld after step %lld", m->path, (long long)step, (long long)m->last_step);
    sn_str_clear(&m->line);
    sn_str_printf(&m->line, "{\"step\": %lld", (long long)step);
    for (size_t i = 0; i < count; i++) {
        sn_str_add(&m->line, ", ");
        add_item(&m->line, &items[i]);
    }
    sn_str_add(&m->line, "}\n");
    if (m->line.failed) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot build a line", m->path);
    if (m->line.size >= LONGEST_LINE) return sn_fail(SN_ERR_INTERNAL, "%s: a line of %zu bytes", m->path, m->line.size);
    m->last_step = step;
    ssize_t put = write(m->fd, m->line.data, m->line.size);
    if (put == (ssize_t)m->line.size) return SN_OK;
    return sn_fail(SN_ERR_FILE, "cannot write %s: %s", m->path, put < 0 ? strerror(errno) : "no space for a whole line");
}

sn_status sn_summary_write(const char *path, const sn_metric *items, size_t count) {
    sn_str s = {0};
    for (size_t i = 0; i < count; i++) {
        sn_str_add(&s, i ? ",\n  " : "{\n  ");
        add_item(&s, &items[i]);
    }
    sn_str_add(&s, count ? "\n}\n" : "{}\n");
    sn_status status = s.failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: cannot build the text", path) : sn_file_replace(path, s.data, s.size);
    sn_str_free(&s);
    return status;
}
