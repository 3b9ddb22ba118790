#include "engine/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/system.h"

static const double least_interval = 0.1;

static int columns_of(int fd) {
    struct winsize w;
    if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    const char *text = getenv("COLUMNS");
    int n = text ? atoi(text) : 0;
    return n > 0 ? n : 80;
}

static bool is_set(const char *name) {
    const char *v = getenv(name);
    return v && *v;
}

void sn_progress_start(sn_progress *p, int fd) {
    const char *term = getenv("TERM"), *force = getenv("FORCE_COLOR");
    *p = (sn_progress){.fd = fd, .drawn = -1, .width = 80};
    p->terminal = isatty(fd) && !(term && !strcmp(term, "dumb")); /* a dumb one cannot redraw a line */
    p->color = p->terminal;
    if (is_set("FORCE_COLOR")) p->color = strcmp(force, "0") != 0;
    if (is_set("NO_COLOR")) p->color = false;
}

static void write_all(int fd, const char *text, size_t n) {
    while (n) {
        ssize_t put = write(fd, text, n);
        if (put <= 0) return; /* a closed terminal must not end a training run */
        text += put;
        n -= (size_t)put;
    }
}

/* Draws the kept line: one write, so that it does not flicker. Cut so that it never reaches the last column, where some
 * terminals wrap. */
static void draw(sn_progress *p) {
    char text[2 * SN_PROGRESS_TEXT + 40];
    int room = SN_PROGRESS_TEXT * 2;
    if (p->terminal) {
        p->width = columns_of(p->fd);
        if (p->width - 1 < room) room = p->width - 1;
    }
    int head = (int)strlen(p->head), rest = (int)strlen(p->rest);
    if (head > room) head = room;
    int gap = rest && head ? 2 : 0;
    if (head + gap + rest > room) rest = room - head - gap;
    if (rest <= 0) rest = gap = 0;
    int n = snprintf(text, sizeof text, "%s%s%.*s%s%*s%.*s%s", p->terminal ? "\r" : "", p->color ? "\033[1m" : "", head, p->head,
                     p->color ? "\033[0m" : "", gap, "", rest, p->rest, p->terminal ? "\033[K" : "\n");
    write_all(p->fd, text, (size_t)n);
    p->shown = p->terminal;
}

void sn_progress_show(sn_progress *p, const char *head, const char *rest, bool important) {
    double now = sn_now();
    if (!important && (!p->terminal || (p->drawn >= 0 && now - p->drawn < least_interval))) return;
    snprintf(p->head, sizeof p->head, "%s", head);
    snprintf(p->rest, sizeof p->rest, "%s", rest);
    p->drawn = now;
    draw(p);
}

void sn_progress_end(sn_progress *p) {
    if (p->shown) write_all(p->fd, "\n", 1);
    p->shown = false;
}

void sn_progress_log(void *context, sn_log_level level, const char *text) {
    sn_progress *p = context;
    static const char warning[] = "warning: ";
    const char *on = p->color && level == SN_LOG_WARN ? "\033[33m" : "", *off = *on ? "\033[0m" : "";
    if (p->shown) write_all(p->fd, "\r\033[K", 4);
    write_all(p->fd, on, strlen(on));
    if (level == SN_LOG_WARN) write_all(p->fd, warning, sizeof warning - 1);
    write_all(p->fd, off, strlen(off));
    write_all(p->fd, text, strlen(text));
    write_all(p->fd, "\n", 1);
    if (p->shown) draw(p);
}

/* ---- Texts ---- */

const char *sn_duration_text(double seconds, char buffer[32]) {
    if (!(seconds >= 0 && seconds < 1e9)) {
        memcpy(buffer, "?", 2);
        return buffer;
    }
    long s = lround(seconds);
    if (s < 3600) snprintf(buffer, 32, "%ld:%02ld", s / 60, s % 60);
    else if (s < 86400) snprintf(buffer, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(buffer, 32, "%ld d %ld h", s / 86400, s / 3600 % 24);
    return buffer;
}

double sn_seconds_left(int64_t done, int64_t total, double seconds) {
    return done > 0 ? seconds / (double)done * (double)(total > done ? total - done : 0) : NAN;
}

/* Appends to a text of SN_PROGRESS_TEXT bytes, with two spaces before all but the first field. */
__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...) {
    size_t n = strlen(text);
    if (n) n += (size_t)snprintf(text + n, SN_PROGRESS_TEXT - n, "  ");
    if (n >= SN_PROGRESS_TEXT) return;
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, SN_PROGRESS_TEXT - n, format, args);
    va_end(args);
}

void sn_step_report_text(const sn_step_report *r, char head[SN_PROGRESS_TEXT], char rest[SN_PROGRESS_TEXT]) {
    char a[32], b[24];
    rest[0] = 0;
    snprintf(head, SN_PROGRESS_TEXT, "step %lld/%lld", (long long)r->step, (long long)r->total);
    if (!isnan(r->loss)) add(rest, "loss %.4f", r->loss);
    if (!isnan(r->learning_rate)) add(rest, "lr %.2e", r->learning_rate);
    if (!isnan(r->grad_norm)) add(rest, "grad %.3g", r->grad_norm);
    if (r->tokens_per_s > 0) add(rest, "%.0f tok/s", r->tokens_per_s);
    if (!isnan(r->seconds_left)) add(rest, "%s left", sn_duration_text(r->seconds_left, a));
    if (r->memory && r->budget) add(rest, "%s of %s", sn_bytes_text(r->memory, a), sn_bytes_text(r->budget, b));
    else if (r->memory) add(rest, "%s", sn_bytes_text(r->memory, a));
}

void sn_transfer_text(const char *name, uint64_t done, uint64_t total, double seconds, char head[SN_PROGRESS_TEXT],
                      char rest[SN_PROGRESS_TEXT]) {
    char a[32], b[24];
    double rate = seconds > 0 ? (double)done / seconds : 0;
    rest[0] = 0;
    snprintf(head, SN_PROGRESS_TEXT, "%s", name);
    if (total) add(rest, "%3.0f%%", floor(100 * (double)done / (double)total));
    if (total) add(rest, "%s of %s", sn_bytes_text(done, a), sn_bytes_text(total, b));
    else add(rest, "%s", sn_bytes_text(done, a));
    if (rate >= 1) add(rest, "%s/s", sn_bytes_text((uint64_t)rate, a));
    if (rate >= 1 && total) add(rest, "%s left", sn_duration_text(done < total ? (double)(total - done) / rate : 0, a));
}
