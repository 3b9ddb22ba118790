/* Whole runs over pipeline stages: losses, checkpoints and what is exported are those of one rank, and a run goes on with other stages. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "support/training.h"

static void ok(const trained *t) {
    if (t->status != SN_OK) fail_msg("training failed: %s", t->error);
}

typedef struct stopper {
    int64_t at;
    volatile sig_atomic_t stop;
} stopper;

static void same_losses(const trained *a, const trained *b, double tolerance, const char *what) {
    assert_int_equal(a->steps, b->steps);
    for (int i = 0; i < a->steps; i++) /* both norms are NaN where the loss scale is too large yet */
        if (!(fabs(a->loss[i] / b->loss[i] - 1) <= tolerance) || isnan(a->norm[i]) != isnan(b->norm[i]) ||
            fabs(a->norm[i] / b->norm[i] - 1) > tolerance)
            fail_msg("%s: step %d: losses %.17g and %.17g, norms %.17g and %.17g", what, i, a->loss[i], b->loss[i], a->norm[i], b->norm[i]);
}

static void same_file(const char *a, const char *b, const char *name) {
    char x[65], y[65];
    training_digest(training_path("%s/%s", a, name), x);
    training_digest(training_path("%s/%s", b, name), y);
    if (strcmp(x, y)) fail_msg("%s of %s and %s differ", name, a, b);
}

/* A short last step of an epoch, evaluation, a checkpoint, an export. Adapters: the same bits; a tied table: within rounding. */
static void as_one_rank(void **state) {
    (void)state;
    static const char *const more[] = {"lora=on lora_dropout=0.1 recompute=all", "weight_decay=0.1", "lora=on precision=bf16",
                                       "precision=fp16"};
    training_rows(training_path("rows.jsonl"), 11);
    for (int k = 0; k < 4; k++) {
        char options[300], one[32], two[32];
        trained a, b;
        bool lora = strstr(more[k], "lora");
        snprintf(one, sizeof one, "one%d", k);
        snprintf(two, sizeof two, "two%d", k);
        snprintf(options, sizeof options, "max_steps=6 eval_fraction=0.2 eval_steps=3 gradient_accumulation_steps=4 %s", more[k]);
        training_run(TINY_LLAMA, options, training_path("rows.jsonl"), training_path("%s", one), NULL, &a);
        ok(&a);
        snprintf(options + strlen(options), sizeof options - strlen(options), " thread_ranks=2 pipeline_parallel_size=2");
        training_run(TINY_LLAMA, options, training_path("rows.jsonl"), training_path("%s", two), NULL, &b);
        ok(&b);
        double tolerance = lora ? 0 : k == 3 ? 2e-2 : 1e-5; /* a gradient in f16 is rounded at each addition */
        same_losses(&a, &b, tolerance, options);
        assert_true(fabs(a.summary.eval_loss / b.summary.eval_loss - 1) <= tolerance);
        assert_true(b.summary.peak_bytes > 0 && b.summary.planned_bytes > a.summary.planned_bytes);
        if (lora) same_file(one, two, "adapter_model.safetensors");
        if (lora) same_file(one, two, "checkpoint-6/state.safetensors");
        if (k == 1) training_near(training_path("%s/model.safetensors", one), training_path("%s/model.safetensors", two), 1e-5);
    }
}

static void stop_at(void *context, const sn_step_report *report) {
    stopper *s = context;
    if (report->step >= s->at) s->stop = 1;
}

/* A run that was stopped goes on with more or fewer stages, or data-parallel ranks: the same bits. */
static void resumes_elsewhere(void **state) {
    (void)state;
    static const char *const ways[] = {"gradient_accumulation_steps=4",
                                       "gradient_accumulation_steps=4 thread_ranks=2 pipeline_parallel_size=2",
                                       "gradient_accumulation_steps=4 thread_ranks=2 pipeline_parallel_size=2 pipeline_schedule=gpipe"};
    static const char *const both = "max_steps=8 lora=on precision=bf16 recompute=light";
    training_rows(training_path("resume.jsonl"), 16);
    char options[300];
    trained straight, part;
    snprintf(options, sizeof options, "%s %s", both, ways[0]);
    training_run(TINY_LLAMA, options, training_path("resume.jsonl"), training_path("straight"), NULL, &straight);
    ok(&straight);
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            char name[32];
            stopper s = {.at = 3};
            sn_train_hooks hooks = {.step = stop_at, .context = &s, .stop = &s.stop};
            if (from == to) continue;
            snprintf(name, sizeof name, "resume%d%d", from, to);
            snprintf(options, sizeof options, "%s %s", both, ways[from]);
            training_run(TINY_LLAMA, options, training_path("resume.jsonl"), training_path("%s", name), &hooks, &part);
            ok(&part);
            assert_true(part.summary.interrupted);
            snprintf(options, sizeof options, "%s %s resume=on", both, ways[to]);
            training_run(TINY_LLAMA, options, training_path("resume.jsonl"), training_path("%s", name), NULL, &part);
            ok(&part);
            same_losses(&straight, &part, 0, options);
            same_file("straight", name, "adapter_model.safetensors");
            same_file("straight", name, "checkpoint-8/state.safetensors");
        }
}

/* A budget has to hold for the stage that needs most. */
static void budgets(void **state) {
    (void)state;
    trained t;
    training_rows(training_path("budget.jsonl"), 16);
    training_run(TINY_LLAMA, "max_steps=1 gradient_accumulation_steps=2 thread_ranks=2 pipeline_parallel_size=2 memory=1MiB",
                 training_path("budget.jsonl"), training_path("budget"), NULL, &t);
    assert_int_equal(t.status, SN_ERR_BUDGET);
}

static int open_folder(void **state) {
    (void)state;
    training_open("pipeline_parallel_train_test");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_one_rank), cmocka_unit_test(resumes_elsewhere), cmocka_unit_test(budgets)};
    return cmocka_run_group_tests(tests, open_folder, training_close);
}
