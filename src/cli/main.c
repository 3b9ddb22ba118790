/* The program: finds the verb, reads its options, runs it. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static int cli_version(cli *c) {
    if (cli_flag(c, "json")) printf("{\"version\": \"%s\"}\n", snug_version());
    else printf("snug %s\n", snug_version());
    return CLI_OK;
}

static const struct {
    const char *name;
    int (*run)(cli *c);
} verbs[] = {
    {"pull", cli_pull},
    {"list", cli_list},
    {"show", cli_show},
    {"rm", cli_rm},
    {"plan", cli_plan},
    {"train", cli_train},
    {"merge", cli_merge},
    {"generate", cli_generate},
    {"chat", cli_chat},
    {"eval", cli_eval},
    {"bench", cli_bench},
    {"tokenize", cli_tokenize},
    {"detokenize", cli_detokenize},
    {"explain", cli_explain},
    {"probe", cli_probe},
    {"version", cli_version},
};

static int help(FILE *to) {
    const char *name, *about;
    fprintf(to, "usage: snug VERB [arguments] [options]\nLarge language models inside a stated memory budget.\n\n");
    for (size_t i = 0; snug_verb(i, &name, &about); i++) fprintf(to, "  %-12s %s\n", name, about);
    fprintf(to, "\nMODEL is a pulled name, a GGUF file, a Hugging Face folder, or, where no weights are needed, a config.json or a\n"
                "named shape (llama-3-8b). 'snug VERB --help' says more.\n");
    return CLI_OK;
}

static int verb_help(const cli *c, bool all) {
    char *text;
    snug_status s = snug_options_help(c->options, all, &text);
    if (s != SNUG_OK) return cli_fail(s);
    fputs(text, stdout);
    snug_free(text);
    return CLI_OK;
}

static int run_verb(cli *c, int argc, char **argv) {
    snug_status s = snug_options_parse(c->options, argc, argv, c->arguments, &c->n_arguments);
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "help") || cli_flag(c, "help_all")) return verb_help(c, cli_flag(c, "help_all"));
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (!strcmp(verbs[i].name, c->verb)) return verbs[i].run(c);
    return cli_usage("this program has no verb %s", c->verb);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    const char *first = argv[1];
    if (!strcmp(first, "-h") || !strcmp(first, "--help")) return cli_finish(help(stdout));
    if (!strcmp(first, "help") && argc == 2) return cli_finish(help(stdout));
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) first = "version";
    bool wants_help = !strcmp(first, "help"); /* snug help VERB */
    cli c = {.verb = wants_help ? argv[2] : first, .arguments = calloc((size_t)argc, sizeof *c.arguments)};
    if (!c.arguments) return cli_usage("out of memory");
    snug_status s = snug_options_new(c.verb, &c.options);
    int status = s != SNUG_OK ? cli_fail(s) : wants_help ? verb_help(&c, false) : run_verb(&c, argc - 2, argv + 2);
    snug_options_free(c.options);
    free(c.arguments);
    return cli_finish(status);
}
