/* snug generate: continues a text. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* With --json the text is gathered, else it is written as it comes. */
typedef struct sink {
    FILE *gather;
} sink;

static bool on_piece(void *context, const char *text, size_t n) {
    sink *to = context;
    fwrite(text, 1, n, to->gather ? to->gather : stdout);
    if (!to->gather) fflush(stdout);
    return !cli_interrupted;
}

static const char *finish_name(snug_finish f) {
    static const char *const names[] = {"stop", "length", "context", "interrupted"};
    return names[f];
}

static void report(const cli *c, const snug_usage *u, const char *text, size_t n) {
    double prompt = u->prompt_seconds > 0 ? (double)(u->prompt_tokens - u->cached_tokens) / u->prompt_seconds : 0;
    double decode = u->decode_seconds > 0 ? (double)u->completion_tokens / u->decode_seconds : 0;
    if (cli_flag(c, "json")) {
        printf("{\"text\": ");
        cli_json_string(stdout, text, n);
        printf(", \"finish_reason\": \"%s\", \"activations\": \"%s\", \"usage\": {\"prompt_tokens\": %lld, \"completion_tokens\": %lld}, "
               "\"prompt_tokens_per_s\": %.3f, \"decode_tokens_per_s\": %.3f}\n",
               finish_name(u->finish), cli_text(c, "activations"), (long long)u->prompt_tokens, (long long)u->completion_tokens, prompt,
               decode);
        return;
    }
    putchar('\n');
    if (cli_flag(c, "verbose"))
        fprintf(stderr, "%lld prompt tokens (%.1f tok/s), %lld new ones (%.1f tok/s), ended by %s\n", (long long)u->prompt_tokens, prompt,
                (long long)u->completion_tokens, decode, finish_name(u->finish));
}

static int run(const cli *c, snug_session *session, const char *prompt, size_t n) {
    char *text = NULL;
    size_t size = 0;
    snug_usage usage;
    sink to = {.gather = cli_flag(c, "json") ? open_memstream(&text, &size) : NULL};
    if (cli_flag(c, "json") && !to.gather) return cli_usage("out of memory");
    cli_catch_interrupts();
    snug_status s = snug_generate(session, prompt, n, on_piece, &to, &usage);
    if (to.gather) fclose(to.gather);
    if (s == SNUG_OK) report(c, &usage, text, size);
    free(text);
    return s == SNUG_OK ? CLI_OK : cli_fail(s);
}

int cli_generate(cli *c) {
    const char *name = cli_only_argument(c, "model"), *prompt = cli_text(c, "prompt"), *file = cli_text(c, "file");
    snug_model *model = NULL;
    snug_session *session = NULL;
    char *read = NULL;
    size_t n = prompt ? strlen(prompt) : 0;
    if (!name) return CLI_USAGE;
    if (!prompt == !file) return cli_usage("generate needs one of -p TEXT and -f FILE");
    if (file && !cli_read_file(file, &read, &n)) return CLI_FAILED;
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK) s = snug_session_open(model, c->options, &session);
    int status = CLI_OK;
    if (s == SNUG_OK) {
        fprintf(stderr, "activations: %s\n", cli_text(c, "activations"));
        status = run(c, session, read ? read : prompt, n);
        snug_bill bill;
        snug_session_bill(session, &bill);
        if (cli_flag(c, "verbose")) cli_memory_report(&bill);
    } else {
        status = cli_fail(s);
    }
    snug_session_close(session);
    snug_model_close(model);
    free(read);
    return status;
}
