/* snug merge: a model with its adapter, or in another form, as files. */
#include "cli/cli.h"

int cli_merge(cli *c) {
    const char *name = cli_only_argument(c, "model");
    snug_model *model = NULL;
    snug_merged r;
    char size[24];
    if (!name) return CLI_USAGE;
    if (!cli_text(c, "out")) return cli_usage("merge needs --out PATH");
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK) s = snug_merge(model, c->options, &r);
    if (s == SNUG_OK && cli_flag(c, "json"))
        printf("{\"tensors\": %llu, \"elements\": %llu, \"bytes\": %llu, \"adapted\": %llu, \"fallbacks\": %llu}\n",
               (unsigned long long)r.tensors, (unsigned long long)r.elements, (unsigned long long)r.bytes, (unsigned long long)r.adapted,
               (unsigned long long)r.fallbacks);
    else if (s == SNUG_OK)
        printf("%s: %llu tensors, %s, %.2f bits a weight; the adapter was added to %llu of them\n", cli_text(c, "out"),
               (unsigned long long)r.tensors, cli_bytes(r.bytes, size), r.elements ? 8.0 * (double)r.bytes / (double)r.elements : 0.0,
               (unsigned long long)r.adapted);
    int status = s == SNUG_OK ? CLI_OK : cli_fail(s);
    snug_model_close(model);
    return status;
}
