/* snug eval: perplexity of a text, or its logits. */
#include "cli/cli.h"

static int dump(cli *c, snug_model *model, const char *path) {
    int64_t tokens;
    snug_status s = snug_eval_logits(model, c->options, path, &tokens);
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "json")) {
        printf("{\"tokens\": %lld, \"activations\": \"%s\", \"logits\": ", (long long)tokens, cli_text(c, "activations"));
        cli_json_string(stdout, path, SIZE_MAX);
        printf("}\n");
    } else {
        printf("logits of %lld tokens written to %s\n", (long long)tokens, path);
    }
    return CLI_OK;
}

static int perplexity(cli *c, snug_model *model) {
    snug_perplexity p;
    snug_status s = snug_eval(model, c->options, &p);
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "json"))
        printf("{\"perplexity\": %.9g, \"nll\": %.9g, \"tokens\": %lld, \"windows\": %lld, \"ctx_size\": %lld, \"stride\": %lld, "
               "\"activations\": \"%s\", \"seconds\": %.3f}\n",
               p.perplexity, p.nll, (long long)p.tokens, (long long)p.windows, (long long)p.ctx_size, (long long)p.stride,
               cli_text(c, "activations"), p.seconds);
    else
        printf("perplexity %.4f over %lld tokens in %lld windows of %lld (%s), %.1f s\n", p.perplexity, (long long)p.tokens,
               (long long)p.windows, (long long)p.ctx_size, p.stride ? "sliding" : "llama.cpp's protocol", p.seconds);
    return CLI_OK;
}

int cli_eval(cli *c) {
    const char *name = cli_only_argument(c, "model");
    snug_model *model = NULL;
    if (!name) return CLI_USAGE;
    if (!cli_text(c, "data")) return cli_usage("eval needs --data FILE");
    snug_status s = snug_model_open(name, &model);
    if (s != SNUG_OK) return cli_fail(s);
    fprintf(stderr, "activations: %s\n", cli_text(c, "activations"));
    int status = cli_text(c, "dump_logits") ? dump(c, model, cli_text(c, "dump_logits")) : perplexity(c, model);
    if (cli_flag(c, "verbose")) fprintf(stderr, "memory: peak %llu bytes\n", (unsigned long long)snug_peak_memory());
    snug_model_close(model);
    return status;
}
