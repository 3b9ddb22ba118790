#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_fail(snug_status status) {
    fflush(stdout);
    fprintf(stderr, "snug: %s\n", *snug_error() ? snug_error() : snug_status_name(status));
    return status == SNUG_ERR_USAGE ? CLI_USAGE : CLI_FAILED;
}

int cli_usage(const char *format, ...) {
    va_list args;
    fflush(stdout);
    fputs("snug: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return CLI_USAGE;
}

const char *cli_only_argument(const cli *c, const char *what) {
    if (c->n_arguments == 1) return c->arguments[0];
    if (!c->n_arguments) cli_usage("%s needs a %s (snug %s --help)", c->verb, what, c->verb);
    else cli_usage("%s takes one %s, and '%s' is one too many", c->verb, what, c->arguments[1]);
    return NULL;
}

bool cli_flag(const cli *c, const char *key) { return snug_options_flag(c->options, key); }

const char *cli_text(const cli *c, const char *key) {
    const char *text = snug_options_text(c->options, key);
    return text && *text ? text : NULL;
}

const char *cli_bytes(uint64_t bytes, char buffer[24]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    int unit = 0;
    for (; n >= 1000 && unit < 4; unit++) n /= 1024;
    snprintf(buffer, 24, unit == 0 ? "%.0f %s" : n < 10 ? "%.2f %s" : n < 100 ? "%.1f %s" : "%.0f %s", n, units[unit]);
    return buffer;
}

/* Bytes of the UTF-8 character at `at`, 0 when there is none (RFC 3629). */
static size_t character(const unsigned char *at, size_t n) {
    size_t length = *at < 0x80 ? 1 : *at >= 0xc2 && *at < 0xe0 ? 2 : (*at & 0xf0) == 0xe0 ? 3 : *at >= 0xf0 && *at < 0xf5 ? 4 : 0;
    if (!length || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool overlong = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xf0 && at[1] < 0x90);
    bool outside = (*at == 0xed && at[1] >= 0xa0) || (*at == 0xf4 && at[1] >= 0x90);
    return overlong || outside ? 0 : length;
}

void cli_json_string(FILE *to, const char *text, size_t n) {
    if (n == SIZE_MAX) n = strlen(text);
    fputc('"', to);
    for (size_t i = 0; i < n;) {
        const unsigned char *at = (const unsigned char *)text + i;
        size_t length = character(at, n - i);
        if (!length) fputs("\\ufffd", to); /* a model may end inside a character */
        else if (*at == '"' || *at == '\\') fprintf(to, "\\%c", *at);
        else if (*at == '\n') fputs("\\n", to);
        else if (*at < 0x20) fprintf(to, "\\u%04x", *at);
        else fwrite(at, 1, length, to);
        i += length ? length : 1;
    }
    fputc('"', to);
}

volatile sig_atomic_t cli_interrupted;

static void on_interrupt(int number) {
    (void)number;
    cli_interrupted = 1;
}

void cli_catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    cli_interrupted = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void cli_release_interrupts(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

bool cli_read_file(const char *path, char **data, size_t *size) {
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    size_t capacity = 0, n = 0;
    char *text = NULL;
    bool good = f != NULL;
    while (good) {
        if (n + 4096 > capacity) {
            char *more = realloc(text, capacity = capacity ? capacity * 2 : 65536);
            if (!more) {
                errno = ENOMEM;
                good = false;
                break;
            }
            text = more;
        }
        size_t got = fread(text + n, 1, capacity - n - 1, f);
        n += got;
        if (!got) {
            good = !ferror(f);
            break;
        }
    }
    if (!good) fprintf(stderr, "snug: %s: %s\n", path, strerror(errno));
    if (f && f != stdin) fclose(f);
    if (!good) {
        free(text);
        return false;
    }
    text[n] = 0;
    *data = text;
    *size = n;
    return true;
}

int cli_finish(int status) {
    if (!fflush(stdout) && !ferror(stdout)) return status;
    if (errno != EPIPE) fprintf(stderr, "snug: standard output: %s\n", strerror(errno));
    return status ? status : CLI_FAILED;
}

void cli_memory_report(const snug_bill *bill) {
    char a[24], b[24];
    fprintf(stderr, "memory: planned %llu bytes (%s), peak %llu bytes (%s)\n", (unsigned long long)bill->total_bytes,
            cli_bytes(bill->total_bytes, a), (unsigned long long)snug_peak_memory(), cli_bytes(snug_peak_memory(), b));
}
