#define _GNU_SOURCE /* posix_openpt */
#include "support/support.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/system.h"
#include "engine/progress.h"

/* What was written to ends[1] since the last call. A terminal hands bytes over later than write() returns, but in order: a
   mark written behind them says when all of it has come, and that nothing else has. */
static const char *drain(const int ends[2]) {
    static char text[8192];
    const char mark = '\036';
    size_t n = 0;
    assert_int_equal(write(ends[1], &mark, 1), 1);
    while (!memchr(text, mark, n)) {
        struct pollfd wait = {.fd = ends[0], .events = POLLIN};
        assert_int_equal(poll(&wait, 1, 60000), 1);
        ssize_t got = read(ends[0], text + n, sizeof text - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_int_equal(text[n - 1], mark);
    text[n - 1] = 0;
    return text;
}

static void expect(const int ends[2], const char *text) { assert_string_equal(drain(ends), text); }

static void open_pipe(int ends[2]) { assert_int_equal(pipe(ends), 0); }

/* ends[1] is a terminal of some columns, ends[0] its other side. */
static void open_terminal(int ends[2], int columns) {
    struct winsize w = {.ws_row = 25, .ws_col = (unsigned short)columns};
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
    if (ends[0] < 0) skip();
    assert_int_equal(grantpt(ends[0]) || unlockpt(ends[0]), 0);
    ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
    assert_true(ends[1] >= 0 && ioctl(ends[1], TIOCSWINSZ, &w) == 0);
}

static void close_both(int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

static int plain_environment(void **state) {
    (void)state;
    unsetenv("NO_COLOR");
    unsetenv("FORCE_COLOR");
    setenv("TERM", "xterm", 1);
    return 0;
}

static void plain_lines_off_a_terminal(void **state) {
    (void)state;
    int ends[2];
    sn_progress p;
    open_pipe(ends);
    sn_progress_start(&p, ends[1]);
    assert_false(p.terminal || p.color);
    sn_progress_show(&p, "step 1/9", "loss 2", true);
    sn_progress_show(&p, "step 2/9", "loss 1", false);
    sn_progress_log(&p, SN_LOG_WARN, "odd row");
    sn_progress_show(&p, "step 3/9", "", true);
    sn_progress_end(&p);
    expect(ends, "step 1/9  loss 2\nwarning: odd row\nstep 3/9\n");
    close_both(ends);
}

static void a_terminal_is_redrawn(void **state) {
    (void)state;
    int ends[2];
    sn_progress p;
    open_terminal(ends, 60);
    sn_progress_start(&p, ends[1]);
    assert_true(p.terminal && p.color);
    sn_progress_show(&p, "step 1/9", "loss 2", false);
    expect(ends, "\r\033[1mstep 1/9\033[0m  loss 2\033[K");
    p.drawn = sn_now() + 1;                            /* a busy machine may have taken longer than the interval */
    sn_progress_show(&p, "step 2/9", "loss 1", false); /* too soon */
    expect(ends, "");
    sn_progress_show(&p, "step 2/9", "loss 1", true);
    expect(ends, "\r\033[1mstep 2/9\033[0m  loss 1\033[K");
    sn_progress_log(&p, SN_LOG_INFO, "saved");
    expect(ends, "\r\033[Ksaved\r\n\r\033[1mstep 2/9\033[0m  loss 1\033[K");
    sn_progress_end(&p);
    sn_progress_end(&p);
    expect(ends, "\r\n");
    close_both(ends);
}

static void cut_to_the_width(void **state) {
    (void)state;
    char longest[300];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    setenv("NO_COLOR", "1", 1);
    for (int width = 1; width < 40; width++) {
        int ends[2];
        sn_progress p;
        open_terminal(ends, width);
        sn_progress_start(&p, ends[1]);
        assert_false(p.color);
        sn_progress_show(&p, "step 1/9", longest, true);
        const char *text = drain(ends);
        assert_int_equal(strlen(text), 1 + (width <= 11 && width > 9 ? 8 : width - 1) + 3); /* no gap with nothing after it */
        close_both(ends);
    }
    int ends[2];
    sn_progress p;
    open_pipe(ends);
    sn_progress_start(&p, ends[1]);
    sn_progress_show(&p, longest, longest, true);
    assert_int_equal(strlen(drain(ends)), 2 * (SN_PROGRESS_TEXT - 1) + 2 + 1);
    close_both(ends);
}

static void colours(void **state) {
    (void)state;
    int ends[2];
    sn_progress p;
    open_pipe(ends);
    setenv("FORCE_COLOR", "1", 1);
    sn_progress_start(&p, ends[1]);
    assert_true(p.color && !p.terminal);
    sn_progress_log(&p, SN_LOG_WARN, "w");
    expect(ends, "\033[33mwarning: \033[0mw\n");
    setenv("NO_COLOR", "1", 1); /* the user's no wins */
    sn_progress_start(&p, ends[1]);
    assert_false(p.color);
    close_both(ends);
    open_terminal(ends, 80);
    setenv("NO_COLOR", "", 1); /* empty counts as unset */
    setenv("FORCE_COLOR", "0", 1);
    sn_progress_start(&p, ends[1]);
    assert_true(p.terminal && !p.color);
    unsetenv("FORCE_COLOR");
    setenv("TERM", "dumb", 1);
    sn_progress_start(&p, ends[1]);
    assert_false(p.terminal || p.color);
    close_both(ends);
}

static void texts(void **state) {
    (void)state;
    char head[SN_PROGRESS_TEXT], rest[SN_PROGRESS_TEXT], t[32];
    sn_step_report r = {120, 1000, 2.34567, 1.024, 3e-4, 1234.4, 754, UINT64_C(6) << 28, UINT64_C(2) << 30};
    sn_step_report_text(&r, head, rest);
    assert_string_equal(head, "step 120/1000");
    assert_string_equal(rest, "loss 2.3457  lr 3.00e-04  grad 1.02  1234 tok/s  12:34 left  1.50 GiB of 2.00 GiB");
    r = (sn_step_report){1, 2, NAN, NAN, NAN, 0, NAN, 0, 0};
    sn_step_report_text(&r, head, rest);
    assert_string_equal(rest, "");
    sn_transfer_text("a.gguf", 47185920, 98362432, 4, head, rest);
    assert_string_equal(head, "a.gguf");
    assert_string_equal(rest, " 47%  45.0 MiB of 93.8 MiB  11.2 MiB/s  0:04 left");
    sn_transfer_text("a.gguf", 98362431, 98362432, 0, head, rest);
    assert_string_equal(rest, " 99%  93.8 MiB of 93.8 MiB"); /* 100% is for the end */
    sn_transfer_text("a.gguf", 512, 0, 0, head, rest);
    assert_string_equal(rest, "512 B");
    const struct {
        double seconds;
        const char *text;
    } durations[] = {{0, "0:00"}, {6.6, "0:07"},   {754, "12:34"}, {3599.6, "1:00:00"}, {3723, "1:02:03"}, {86400 * 3 + 14500, "3 d 4 h"},
                     {NAN, "?"},  {INFINITY, "?"}, {-1, "?"}};
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
        assert_string_equal(sn_duration_text(durations[i].seconds, t), durations[i].text);
    assert_true(sn_seconds_left(10, 40, 5) == 15 && sn_seconds_left(40, 40, 5) == 0 && sn_seconds_left(50, 40, 5) == 0);
    assert_true(isnan(sn_seconds_left(0, 40, 5)));
}

static void a_gone_reader_is_no_end(void **state) {
    (void)state;
    sn_progress p;
    sn_progress_start(&p, -1);
    sn_progress_show(&p, "step", "", true);
    sn_progress_log(&p, SN_LOG_INFO, "x");
    sn_progress_end(&p);
    double a = sn_now();
    assert_true(sn_now() >= a);
}

#define TEST(f) cmocka_unit_test_setup(f, plain_environment)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(plain_lines_off_a_terminal), TEST(a_terminal_is_redrawn), TEST(cut_to_the_width), TEST(colours), TEST(texts),
        TEST(a_gone_reader_is_no_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
