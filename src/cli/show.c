/* snug show: what is in a model. */
#include "cli/cli.h"

int cli_show(cli *c) {
    const char *name = cli_only_argument(c, "model");
    snug_model *model = NULL;
    char *text;
    if (!name) return CLI_USAGE;
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK) s = snug_model_show(model, cli_flag(c, "json"), &text);
    if (s == SNUG_OK) {
        fputs(text, stdout);
        snug_free(text);
    }
    int status = s == SNUG_OK ? CLI_OK : cli_fail(s);
    snug_model_close(model);
    return status;
}
