/* snug tokenize: rows of a file to token ids. */
#include "cli/cli.h"

static bool print_row(void *context, const int32_t *ids, size_t n) {
    const cli *c = context;
    bool json = cli_flag(c, "json");
    if (json) printf("{\"input_ids\": [");
    for (size_t i = 0; i < n; i++) printf("%s%d", i ? (json ? ", " : " ") : "", ids[i]);
    printf(json ? "]}\n" : "\n");
    return !ferror(stdout);
}

int cli_tokenize(cli *c) {
    const char *name = cli_only_argument(c, "model");
    snug_model *model = NULL;
    if (!name) return CLI_USAGE;
    if (!cli_text(c, "data")) return cli_usage("tokenize needs --data FILE");
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK) s = snug_tokenize_file(model, cli_text(c, "data"), cli_flag(c, "chat"), print_row, c);
    int status = s == SNUG_OK ? CLI_OK : cli_fail(s);
    snug_model_close(model);
    return status;
}
