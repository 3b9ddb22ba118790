/* Parity with transformers, PyTorch and PEFT in f32: logits, losses and gradient norms, step by step. Golden values:
 * tests/golden/make_parity.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/evaluate.h"
#include "engine/train.h"
#include "io/safetensors.h"
#include "support/tiny.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/"
#define PARITY GOLDEN "parity/"

typedef struct family {
    const char *name, *model;
} family;

static const family families[] = {
    {"llama", PARITY "llama"},   /* tied, GQA, head_dim not hidden / heads */
    {"llama3", PARITY "llama3"}, /* untied, and llama3's rope scaling */
    {"gpt2", GOLDEN "model_files/gpt2"},
};
enum { FAMILIES = sizeof families / sizeof families[0] };

/* A tensor of a golden file, n elements of 4 bytes; sn_free it. */
static void *golden(const char *file, const char *name, size_t n) {
    char path[600];
    sn_st st;
    snprintf(path, sizeof path, PARITY "%s.safetensors", file);
    assert_ok(sn_st_open(path, &st));
    const sn_st_tensor *t = sn_st_find(&st, name);
    if (!t || t->bytes != 4 * n) fail_msg("%s: no %s of %zu elements", path, name, n);
    void *data = sn_alloc(4 * n);
    assert_non_null(data);
    assert_ok(sn_st_read(&st, t, 0, data, 4 * n));
    sn_st_close(&st);
    return data;
}

/* Largest |a - b|, over |b| when relative. NaN never passes. */
static void assert_close(const char *what, const float *a, const float *b, size_t n, bool relative, double bound) {
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        double e = fabs((double)a[i] - b[i]) / (relative ? fabs((double)b[i]) : 1);
        if (!(e <= worst)) {
            worst = isnan(e) ? INFINITY : e;
            at = i;
        }
    }
    print_message("%-28s largest %s difference %.2e (bound %g)\n", what, relative ? "relative" : "absolute", worst, bound);
    if (!(worst <= bound)) fail_msg("%s: element %zu is %.9g, the reference says %.9g", what, at, (double)a[at], (double)b[at]);
}

/* assert_close with tensor `name` of golden file `file`. */
static void assert_golden(const char *file, const char *name, const float *values, size_t n, bool relative, double bound) {
    char what[64];
    float *wanted = golden(file, name, n);
    snprintf(what, sizeof what, "%s %s", file, name);
    assert_close(what, values, wanted, n, relative, bound);
    sn_free(wanted);
}

/* Two sequences packed into one row: neither sees the other. */
static void logits_of_packed_sequences(void **state) {
    enum { FIRST = 17, SECOND = 12, T = FIRST + SECOND, VOCAB = 24 };
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        int32_t *ids = golden(families[f].name, "ids", T);
        sn_model m;
        sn_session s;
        sn_options *recipe = tiny_recipe("threads=2");
        assert_ok(sn_model_open(families[f].model, &m));
        assert_int_equal(m.config->vocab_size, VOCAB);
        assert_ok(sn_evaluator_open(&m, recipe, NULL, T, true, &s));
        int32_t *in = sn_run_io(s.run, 0, "ids", 0, NULL), *positions = sn_run_io(s.run, 0, "positions", 0, NULL);
        int32_t *starts = sn_run_io(s.run, 0, "seq_start", 0, NULL);
        for (int t = 0; t < T; t++) {
            in[t] = ids[t];
            starts[t] = t < FIRST ? 0 : FIRST;
            positions[t] = t - starts[t];
        }
        assert_ok(sn_run_program(s.run, 0, 0));
        assert_golden(families[f].name, "logits", sn_run_io(s.run, 0, "logits", 0, NULL), T * VOCAB, false, 1e-4);
        sn_free(ids);
        sn_session_close(&s);
        sn_model_close(&m);
        sn_options_close(recipe);
    }
}

/* ---- Small models through sn_train ---- */

enum { STEPS = 20 };

typedef struct curve {
    float loss[STEPS], norm[STEPS];
    int64_t steps;
} curve;

static void record(void *context, const sn_step_report *report) {
    curve *c = context;
    assert_int_equal(report->step, c->steps + 1);
    assert_true(c->steps < STEPS);
    c->loss[c->steps] = (float)report->loss;
    c->norm[c->steps++] = (float)report->grad_norm;
}

/* 20 steps of 2 rows on rows.jsonl, from the golden adapter when it is LoRA. */
static void train(const family *f, bool lora, const char *more) {
    char options[1024], adapter[600], name[32], prefix[200];
    static const char *const quantities[] = {"loss", "norm"};
    curve c = {0};
    sn_model m;
    sn_train_summary summary;
    sn_train_hooks hooks = {.step = record, .context = &c};
    snprintf(
        options, sizeof options,
        "shuffle=off cutoff_len=24 per_device_train_batch_size=2 max_steps=%d lr_scheduler_type=linear weight_decay=0.01 max_grad_norm=1 "
        "learning_rate=%s threads=2 %s",
        STEPS, lora ? "5e-3" : "1e-3", more);
    sn_options *recipe = tiny_recipe(options);
    snprintf(adapter, sizeof adapter, PARITY "adapter-%s", f->name);
    if (lora) assert_ok(sn_options_set(recipe, "adapter", adapter, SN_FROM_COMMAND_LINE, "test"));
    snprintf(prefix, sizeof prefix, "parity-%s-%d", f->name, lora);
    const char *out = test_dir(prefix);
    assert_ok(sn_model_open(f->model, &m));
    assert_ok(sn_train(&m, recipe, PARITY "rows.jsonl", out, &hooks, &summary));
    assert_int_equal(c.steps, STEPS);
    for (int q = 0; q < 2; q++) {
        snprintf(name, sizeof name, "%s_%s", lora ? "lora" : "full", quantities[q]);
        assert_golden(f->name, name, q ? c.norm : c.loss, STEPS, q, q ? 1e-4 : 2e-5);
    }
    sn_model_close(&m);
    sn_options_close(recipe);
    assert_ok(sn_remove_tree(out));
}

static void full_fine_tuning(void **state) {
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) train(&families[f], false, "");
    train(&families[1], false, "recompute=all");
}

static void lora_from_an_adapter(void **state) {
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) train(&families[f], true, "");
    train(&families[2], true, "recompute=every:1");
}

/* ---- SmolLM2 ---- */

enum { LENGTH = 64, COLUMNS = 64, REAL_STEPS = 3 };

static bool open_smollm2(sn_model *m) {
    const char *path = getenv("SNUG_TEST_GGUF");
    if (!path || !*path) return false;
    assert_ok(sn_model_open(path, m));
    return true;
}

static void smollm2_logits(void **state) {
    sn_model m;
    sn_session s;
    (void)state;
    if (!open_smollm2(&m)) skip();
    sn_options *recipe = tiny_recipe("seed=1");
    int32_t *ids = golden("smollm2", "ids", LENGTH), *columns = golden("smollm2", "columns", COLUMNS);
    int64_t vocab = m.config->vocab_size;
    float sampled[LENGTH * COLUMNS], losses[LENGTH - 1];
    assert_ok(sn_evaluator_open(&m, recipe, NULL, LENGTH, true, &s));
    sn_fill_sequence(s.run, 0, 0, ids, LENGTH, LENGTH);
    assert_ok(sn_run_program(s.run, 0, 0));
    const float *logits = sn_run_io(s.run, 0, "logits", 0, NULL);
    for (int t = 0; t < LENGTH; t++) {
        const float *row = logits + t * vocab;
        for (int c = 0; c < COLUMNS; c++) sampled[t * COLUMNS + c] = row[columns[c]];
        double most = -INFINITY, sum = 0;
        for (int64_t v = 0; v < vocab; v++) most = fmax(most, (double)row[v]);
        for (int64_t v = 0; v < vocab; v++) sum += exp((double)row[v] - most);
        if (t + 1 < LENGTH) losses[t] = (float)(most + log(sum) - (double)row[ids[t + 1]]);
    }
    assert_golden("smollm2", "logits", sampled, LENGTH * COLUMNS, false, 1e-3);
    assert_golden("smollm2", "token_losses", losses, LENGTH - 1, false, 5e-4);
    sn_session_close(&s);
    sn_options_close(recipe);
    sn_free(ids);
    sn_free(columns);
    sn_model_close(&m);
}

/* One step of sn_train on one row of labels, without its checkpoint and export of 2 GB. */
static void step_of(const sn_session *s, const int32_t *ids, int step, float *loss, float *norm) {
    int program = sn_job_role_index(s->job, SN_ROLE_TRAIN);
    double *total = sn_run_persistent(s->run, sn_job_find(s->job, "loss"));
    int32_t *labels = sn_run_io(s->run, program, "labels", 0, NULL);
    double rate = 5e-5 * (REAL_STEPS - step) / REAL_STEPS;
    float hyper[8] = {(float)rate, (float)(1 - pow(0.9, step + 1)), (float)(1 - pow(0.999, step + 1)), 1, (float)(step + 1)};
    sn_fill_sequence(s->run, program, 0, ids, LENGTH, LENGTH);
    for (int t = 0; t < LENGTH; t++) labels[t] = t + 1 < LENGTH ? ids[t + 1] : -100;
    *(float *)sn_run_io(s->run, program, "scale", 0, NULL) = 1.0f / (LENGTH - 1);
    memset(total, 0, 2 * sizeof *total);
    memcpy(sn_run_io(s->run, program, "hyper", 0, NULL), hyper, sizeof hyper);
    assert_ok(sn_run_program(s->run, program, 0));
    assert_true(total[1] == LENGTH - 1);
    *loss = (float)(total[0] / total[1]);
    *norm = ((const float *)sn_run_io(s->run, program, "clip", 0, NULL))[2];
}

/* torch's own f32 sums are off by 5e-5 (norm) and 6e-6 (loss): against f64 sums of the same gradients and logits the
 * bounds are tighter. */
static void smollm2_full_fine_tuning(void **state) {
    sn_model m;
    sn_session s;
    float loss[REAL_STEPS], norm[REAL_STEPS];
    (void)state;
    if (!open_smollm2(&m)) skip();
    sn_options *recipe = tiny_recipe("cutoff_len=64 weight_decay=0.01 max_grad_norm=1");
    int32_t *rows = golden("smollm2", "rows", REAL_STEPS * LENGTH);
    assert_ok(sn_train_plan(&m, recipe, NULL, NULL, &s));
    assert_ok(sn_session_open(&s, recipe, NULL, NULL));
    for (int step = 0; step < REAL_STEPS; step++) step_of(&s, rows + step * LENGTH, step, &loss[step], &norm[step]);
    assert_golden("smollm2", "loss", loss, REAL_STEPS, false, 2e-5);
    assert_golden("smollm2", "norm", norm, REAL_STEPS, true, 1e-4);
    assert_golden("smollm2", "loss_f64", loss, REAL_STEPS, false, 1e-5);
    assert_golden("smollm2", "norm_f64", norm, REAL_STEPS, true, 3e-5);
    sn_session_close(&s);
    sn_free(rows);
    sn_options_close(recipe);
    sn_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_packed_sequences), cmocka_unit_test(full_fine_tuning),
        cmocka_unit_test(lora_from_an_adapter),       cmocka_unit_test(smollm2_logits),
        cmocka_unit_test(smollm2_full_fine_tuning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
