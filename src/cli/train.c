/* snug train: fine-tunes a model. The first interrupt saves a checkpoint and ends, the second ends at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static void planned(void *context, const snug_bill *bill) {
    char total[24], budget[24];
    (void)context;
    fprintf(stderr, "plan: %s", cli_bytes(bill->total_bytes, total));
    if (bill->budget_bytes) fprintf(stderr, " of %s", cli_bytes(bill->budget_bytes, budget));
    fprintf(stderr, "; the peak is in %s at %s\n", bill->peak_program, bill->peak_op);
}

static char *fit; /* what the fit did, as JSON; NULL: nothing */

static void fitted(void *context, const char *json) {
    (void)context;
    free(fit);
    fit = strdup(json);
}

static void json_number(const char *key, double value) {
    if (isfinite(value)) printf(", \"%s\": %.9g", key, value);
    else printf(", \"%s\": null", key);
}

static void report(const cli *c, const snug_train_summary *s) {
    char planned_text[24], peak[24];
    if (cli_flag(c, "json")) {
        printf("{\"planned_bytes\": %llu, \"peak_bytes\": %llu", (unsigned long long)s->planned_bytes, (unsigned long long)s->peak_bytes);
        json_number("tokens_per_s", s->tokens_per_s);
        json_number("first_loss", s->first_loss);
        json_number("last_loss", s->last_loss);
        json_number("eval_loss", s->eval_loss);
        json_number("start_seconds", s->start_seconds);
        json_number("step_seconds", s->step_seconds);
        json_number("estimated_step_seconds", s->estimated_step_seconds);
        printf(", \"rates_known\": %s, \"fit\": %s", s->estimate_measured ? "true" : "false", fit ? fit : "null");
        printf(", \"steps\": %lld, \"skipped\": %lld, \"tokens\": %lld, \"interrupted\": %s}\n", (long long)s->steps, (long long)s->skipped,
               (long long)s->tokens, s->interrupted ? "true" : "false");
        return;
    }
    printf("%s after %lld steps: loss %.4f -> %.4f", s->interrupted ? "stopped" : "done", (long long)s->steps, s->first_loss, s->last_loss);
    if (isfinite(s->eval_loss)) printf(", evaluation loss %.4f", s->eval_loss);
    printf(", %.0f tokens/s\nplanned %llu bytes (%s), peak %llu bytes (%s)\n", s->tokens_per_s, (unsigned long long)s->planned_bytes,
           cli_bytes(s->planned_bytes, planned_text), (unsigned long long)s->peak_bytes, cli_bytes(s->peak_bytes, peak));
    if (isfinite(s->step_seconds))
        printf("a step took %.3g s, estimated %.3g s (%+.0f%%)%s\n", s->step_seconds, s->estimated_step_seconds,
               100 * (s->estimated_step_seconds / s->step_seconds - 1),
               s->estimate_measured ? "" : ", by guessed rates: snug probe measures this machine");
    if (s->interrupted) printf("--resume goes on from here\n");
}

int cli_train(cli *c) {
    const char *name = cli_only_argument(c, "model");
    snug_model *model = NULL;
    snug_train_summary summary;
    snug_train_hooks hooks = {.planned = planned, .fitted = fitted, .step = snug_step_line, .stop = &cli_interrupted};
    if (!name) return CLI_USAGE;
    if (!cli_text(c, "data")) return cli_usage("train needs --data FILE");
    if (!cli_text(c, "out")) return cli_usage("train needs --out DIR");
    cli_catch_interrupts();
    snug_status s = snug_model_open(name, &model);
    if (s == SNUG_OK) s = snug_train(model, c->options, &hooks, &summary);
    snug_line_end();
    if (s == SNUG_OK && !summary.rank) report(c, &summary);
    int status = s != SNUG_OK ? cli_fail(s) : summary.interrupted ? CLI_FAILED : CLI_OK;
    snug_model_close(model);
    free(fit);
    return status;
}
