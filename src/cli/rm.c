/* snug rm: removes a pulled model. */
#include "cli/cli.h"

int cli_rm(cli *c) {
    const char *name = cli_only_argument(c, "name");
    if (!name) return CLI_USAGE;
    snug_status s = snug_remove(name);
    return s == SNUG_OK ? CLI_OK : cli_fail(s);
}
