/* snug chat: a conversation in the terminal, or one question with -p. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

typedef struct turn {
    FILE *gather; /* with --json; else NULL */
    bool color;
} turn;

static bool on_piece(void *context, const char *text, size_t n) {
    turn *t = context;
    fwrite(text, 1, n, t->gather ? t->gather : stdout);
    if (!t->gather) fflush(stdout);
    return !cli_interrupted;
}

static bool colored(void) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(1) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

static void print_json(const cli *c, const snug_usage *u, const char *text, size_t n) {
    printf("{\"role\": \"assistant\", \"content\": ");
    cli_json_string(stdout, text, n);
    printf(", \"activations\": \"%s\", \"usage\": {\"prompt_tokens\": %lld, \"completion_tokens\": %lld}}\n", cli_text(c, "activations"),
           (long long)u->prompt_tokens, (long long)u->completion_tokens);
}

static int answer(const cli *c, snug_session *session, turn *t, const char *text, size_t n) {
    char *gathered = NULL;
    size_t size = 0;
    snug_usage usage;
    t->gather = cli_flag(c, "json") ? open_memstream(&gathered, &size) : NULL;
    if (cli_flag(c, "json") && !t->gather) return cli_usage("out of memory");
    cli_catch_interrupts();
    snug_status s = snug_chat(session, text, n, on_piece, t, &usage);
    cli_release_interrupts();
    if (t->gather) fclose(t->gather);
    if (s == SNUG_OK && t->gather) print_json(c, &usage, gathered, size);
    else if (s == SNUG_OK) putchar('\n');
    free(gathered);
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "verbose"))
        fprintf(stderr, "%lld prompt tokens, %lld of them kept from before, %.1f tok/s decoding\n", (long long)usage.prompt_tokens,
                (long long)usage.cached_tokens, usage.decode_seconds > 0 ? (double)usage.completion_tokens / usage.decode_seconds : 0.0);
    fflush(stdout);
    return CLI_OK;
}

static int loop(const cli *c, snug_session *session, turn *t) {
    bool terminal = isatty(0);
    char *line = NULL;
    size_t capacity = 0;
    int status = CLI_OK;
    if (terminal) fprintf(stderr, "/reset forgets the conversation, /exit ends; Ctrl-C stops an answer\n");
    for (;;) {
        if (terminal) {
            fputs(t->color ? "\033[1m> \033[0m" : "> ", stdout);
            fflush(stdout);
        }
        ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0) break;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (!n) continue;
        if (!strcmp(line, "/exit") || !strcmp(line, "/quit") || !strcmp(line, "/bye")) break;
        if (!strcmp(line, "/reset")) {
            snug_chat_reset(session);
            continue;
        }
        if (line[0] == '/') {
            fprintf(stderr, "snug: unknown command %s: /reset and /exit are there\n", line);
            continue;
        }
        status = answer(c, session, t, line, (size_t)n);
        if (status != CLI_OK && !terminal) break;
    }
    if (terminal) putchar('\n');
    free(line);
    return terminal ? CLI_OK : status;
}

int cli_chat(cli *c) {
    const char *name = cli_only_argument(c, "model"), *prompt = cli_text(c, "prompt");
    snug_model *model = NULL;
    snug_session *session = NULL;
    if (!name) return CLI_USAGE;
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK) s = snug_session_open(model, c->options, &session);
    int status;
    if (s == SNUG_OK) {
        turn t = {.color = colored()};
        snug_bill bill;
        fprintf(stderr, "activations: %s\n", cli_text(c, "activations"));
        status = prompt ? answer(c, session, &t, prompt, strlen(prompt)) : loop(c, session, &t);
        snug_session_bill(session, &bill);
        if (cli_flag(c, "verbose")) cli_memory_report(&bill);
    } else {
        status = cli_fail(s);
    }
    snug_session_close(session);
    snug_model_close(model);
    return status;
}
