/* snug pull: a named model into the store. */
#include "cli/cli.h"

static bool progress(void *context, const char *file, uint64_t done, uint64_t total) {
    return snug_progress_line(context, file, done, total) && !cli_interrupted;
}

int cli_pull(cli *c) {
    const char *name = cli_only_argument(c, "name");
    char *path;
    if (!name) return CLI_USAGE;
    cli_catch_interrupts();
    snug_status s = snug_pull(name, cli_text(c, "from"), progress, NULL, &path);
    snug_line_end();
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "json")) {
        printf("{\"path\": ");
        cli_json_string(stdout, path, SIZE_MAX);
        printf("}\n");
    } else {
        printf("%s\n", path);
    }
    snug_free(path);
    return CLI_OK;
}
