/* What the verbs share. The command line sees snug.h and the C library only. */
#ifndef SN_CLI_CLI_H
#define SN_CLI_CLI_H

#include <signal.h>
#include <stdio.h>

#include "snug.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* One run of a verb. */
typedef struct cli {
    const char *verb;
    snug_options *options;
    const char **arguments; /* what is no flag */
    size_t n_arguments;
} cli;

/* Each verb is one function in the file of its name; the exit status. */
int cli_pull(cli *c);
int cli_list(cli *c);
int cli_show(cli *c);
int cli_rm(cli *c);
int cli_plan(cli *c);
int cli_train(cli *c);
int cli_merge(cli *c);
int cli_generate(cli *c);
int cli_chat(cli *c);
int cli_eval(cli *c);
int cli_bench(cli *c);
int cli_tokenize(cli *c);
int cli_detokenize(cli *c);
int cli_explain(cli *c);
int cli_probe(cli *c);

/* "snug: MESSAGE" of the library's last error, and the exit status for it. */
int cli_fail(snug_status status);
/* The same for an error of the command line itself. */
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The one positional argument; NULL after saying that it is missing or that there are more. */
const char *cli_only_argument(const cli *c, const char *what);

bool cli_flag(const cli *c, const char *key);
const char *cli_text(const cli *c, const char *key); /* NULL when unset or empty */

/* A size for people: "93.8 MiB". Returns buffer. */
const char *cli_bytes(uint64_t bytes, char buffer[24]);

/* A JSON string literal with its quotes; n = SIZE_MAX: up to the NUL. */
void cli_json_string(FILE *to, const char *text, size_t n);

/* SIGINT (and SIGTERM) sets cli_interrupted (0 before) instead of ending the program; a second one ends it. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupts(void);
void cli_release_interrupts(void);

/* A whole file ("-": standard input), NUL-terminated; free(*data). Says what is wrong and returns false on failure. */
bool cli_read_file(const char *path, char **data, size_t *size);

/* Flushes standard output; what could not be written (a full disk) is a failure. */
int cli_finish(int status);

/* One line on standard error: planned bytes and the peak that the system saw. */
void cli_memory_report(const snug_bill *bill);

#endif
