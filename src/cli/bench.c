/* snug bench: tokens a second. */
#include "cli/cli.h"

static void report(const cli *c, const char *name, const snug_bench_result *r) {
    if (!cli_flag(c, "json")) {
        printf("%-24s %14s\n", "test", "tokens/s");
        if (r->prompt_tokens)
            printf("prompt %-17lld %8.2f +- %.2f\n", (long long)r->prompt_tokens, r->prompt_tokens_per_s, r->prompt_deviation);
        if (r->decode_tokens)
            printf("decode %-17lld %8.2f +- %.2f\n", (long long)r->decode_tokens, r->decode_tokens_per_s, r->decode_deviation);
        return;
    }
    printf("{\"model\": ");
    cli_json_string(stdout, name, SIZE_MAX);
    printf(", \"activations\": \"%s\", \"repetitions\": %lld, \"prompt_tokens\": %lld, \"prompt_tokens_per_s\": %.4f, "
           "\"prompt_deviation\": %.4f, "
           "\"decode_tokens\": %lld, \"decode_tokens_per_s\": %.4f, \"decode_deviation\": %.4f}\n",
           cli_text(c, "activations"), (long long)r->repetitions, (long long)r->prompt_tokens, r->prompt_tokens_per_s, r->prompt_deviation,
           (long long)r->decode_tokens, r->decode_tokens_per_s, r->decode_deviation);
}

int cli_bench(cli *c) {
    const char *name = cli_only_argument(c, "model");
    snug_model *model = NULL;
    snug_bench_result r;
    if (!name) return CLI_USAGE;
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK) fprintf(stderr, "activations: %s\n", cli_text(c, "activations"));
    if (s == SNUG_OK) s = snug_bench(model, c->options, &r);
    if (s == SNUG_OK) report(c, name, &r);
    int status = s == SNUG_OK ? CLI_OK : cli_fail(s);
    snug_model_close(model);
    return status;
}
