/* snug plan: the bill of a job. */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"

static int write_page(const snug_plan *plan, const char *path) {
    char *page;
    snug_status s = snug_plan_render(plan, SNUG_RENDER_HTML, &page);
    if (s != SNUG_OK) return cli_fail(s);
    FILE *f = fopen(path, "w");
    bool good = f && fputs(page, f) >= 0;
    if (f && fclose(f)) good = false;
    if (!good) fprintf(stderr, "snug: %s: %s\n", path, strerror(errno));
    snug_free(page);
    return good ? CLI_OK : CLI_FAILED;
}

static int report(cli *c, const snug_plan *plan) {
    char *text;
    snug_status s = snug_plan_render(plan, cli_flag(c, "json") ? SNUG_RENDER_JSON : SNUG_RENDER_TEXT, &text);
    if (s != SNUG_OK) return cli_fail(s);
    fputs(text, stdout);
    snug_free(text);
    int status = cli_text(c, "html") ? write_page(plan, cli_text(c, "html")) : CLI_OK;
    s = snug_plan_check(plan);
    return s != SNUG_OK ? cli_fail(s) : status;
}

static int compare(cli *c, snug_model *model) {
    char *text;
    snug_status s = snug_plan_compare(model, c->options, cli_flag(c, "json"), &text);
    if (s != SNUG_OK) return cli_fail(s);
    fputs(text, stdout);
    snug_free(text);
    return CLI_OK;
}

int cli_plan(cli *c) {
    const char *name = cli_only_argument(c, "model");
    snug_model *model = NULL;
    snug_plan *plan = NULL;
    if (!name) return CLI_USAGE;
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK && cli_flag(c, "compare")) {
        int compared = compare(c, model);
        snug_model_close(model);
        return compared;
    }
    if (s == SNUG_OK) s = snug_plan_make(model, c->options, &plan);
    int status = s == SNUG_OK ? report(c, plan) : cli_fail(s);
    snug_plan_free(plan);
    snug_model_close(model);
    return status;
}
