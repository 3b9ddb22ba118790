#include "support/training.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/export.h"
#include "io/safetensors.h"

static char root[400];
static int warnings;

static void count_message(void *context, sn_log_level level, const char *text) {
    (void)context, (void)text;
    warnings += level == SN_LOG_WARN;
}

void training_open(const char *name) {
    snprintf(root, sizeof root, "%s", test_dir(name));
    sn_log_to(count_message, NULL);
}

int training_close(void **state) {
    (void)state;
    sn_log_to(NULL, NULL);
    assert_ok(sn_remove_tree(root));
    return 0;
}

int training_warnings(void) {
    int n = warnings;
    warnings = 0;
    return n;
}

const char *training_path(const char *format, ...) {
    static char paths[8][600];
    static int turn;
    char *path = paths[turn++ % 8];
    int n = snprintf(path, sizeof paths[0], "%s/", root);
    va_list args;
    va_start(args, format);
    vsnprintf(path + n, sizeof paths[0] - (size_t)n, format, args);
    va_end(args);
    return path;
}

void training_text(const char *path, const char *text) { assert_ok(sn_file_replace(path, text, strlen(text))); }

void training_rows(const char *path, int rows) {
    sn_str text = {0};
    for (int r = 0; r < rows; r++) {
        sn_rng4 size = sn_philox(5, 0, (uint32_t)r, 0, 0, 0);
        int n = 4 + (int)(size.v[0] % 9);
        sn_str ids = {0}, labels = {0};
        for (int i = 0; i < n; i++) {
            int id = 3 + (int)(sn_philox(5, 1, (uint32_t)r, (uint32_t)i, 0, 0).v[0] % 21);
            sn_str_printf(&ids, "%s%d", i ? ", " : "", id);
            sn_str_printf(&labels, "%s%d", i ? ", " : "", i < 2 ? -100 : id);
        }
        sn_str_printf(&text, "{\"input_ids\": [%s], \"labels\": [%s]}\n", ids.data, labels.data);
        sn_str_free(&ids);
        sn_str_free(&labels);
    }
    assert_false(text.failed);
    training_text(path, text.data);
    sn_str_free(&text);
}

static double number(const json_t *line, const char *key) {
    const json_t *v = json_object_get(line, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void read_metrics(const char *out, trained *t) {
    char text[1024], *path = sn_path_join(out, "metrics.jsonl");
    FILE *f = fopen(path, "r");
    while (f && fgets(text, sizeof text, f)) {
        json_t *line = json_loads(text, 0, NULL);
        assert_non_null(line);
        if (json_object_get(line, "loss")) {
            assert_true(t->steps < TRAINED_MOST);
            t->step[t->steps] = (int64_t)number(line, "step");
            t->loss[t->steps] = number(line, "loss");
            t->norm[t->steps] = number(line, "grad_norm");
            t->rate[t->steps++] = number(line, "learning_rate");
        }
        json_decref(line);
    }
    if (f) fclose(f);
    sn_free(path);
}

void training_run(const char *model, const char *options, const char *data, const char *out, const sn_train_hooks *hooks, trained *t) {
    char text[512];
    sn_model m;
    memset(t, 0, sizeof *t);
    snprintf(text, sizeof text, "threads=1 memory=1GiB cutoff_len=16 %s", options);
    sn_options *recipe = tiny_recipe(text);
    assert_ok(sn_model_open(model, &m));
    t->status = sn_train(&m, recipe, data, out, hooks, &t->summary);
    snprintf(t->error, sizeof t->error, "%s", t->status == SN_OK ? "" : sn_error_text());
    sn_model_close(&m);
    sn_options_close(recipe);
    read_metrics(out, t);
}

void training_steadily(const char *model, const char *options, const char *data, const char *out, trained *t) {
    char all[700];
    snprintf(all, sizeof all, "lr_scheduler_type=constant learning_rate=1e-3 adam_epsilon=1e-5 %s", options);
    training_run(model, all, data, out, NULL, t);
    if (t->status != SN_OK) fail_msg("%s: %s", options, t->error);
}

void training_digest(const char *path, char hex[65]) {
    char *data;
    size_t size;
    sn_sha256 h;
    assert_ok(sn_file_read_all(path, 1 << 24, &data, &size));
    sn_sha256_start(&h);
    sn_sha256_add(&h, data, size);
    sn_sha256_end(&h, hex);
    sn_free(data);
}

void training_near(const char *one, const char *other, double within) {
    sn_st a, b;
    assert_ok(sn_st_open(one, &a));
    assert_ok(sn_st_open(other, &b));
    assert_true(a.tensor_count == b.tensor_count && a.tensor_count > 0);
    for (size_t i = 0; i < a.tensor_count; i++) {
        const sn_st_tensor *x = &a.tensors[i], *y = sn_st_find(&b, x->name);
        assert_true(y && x->bytes == y->bytes && x->dtype == SN_F32);
        float *p = sn_alloc((size_t)x->bytes), *q = sn_alloc((size_t)x->bytes);
        assert_true(p && q);
        assert_ok(sn_st_read(&a, x, 0, p, (size_t)x->bytes));
        assert_ok(sn_st_read(&b, y, 0, q, (size_t)x->bytes));
        double error = test_error(q, p, (size_t)x->bytes / sizeof(float));
        if (!(error <= within)) fail_msg("%s and %s: %s differs by %g", one, other, x->name, error);
        sn_free(p);
        sn_free(q);
    }
    sn_st_close(&a);
    sn_st_close(&b);
}

void training_altered(const char *model, const char *folder, const char *name, void (*fn)(float *x, int64_t n)) {
    tiny t;
    sn_model m;
    assert_ok(sn_model_open(model, &m));
    tiny_open_model(&t, &m, "threads=1", "cpu");
    sn_pid p = sn_job_find(t.job, name);
    assert_true(p != SN_NONE);
    fn(sn_run_persistent(t.run, p), (int64_t)(t.plan->persistent[p].bytes / sizeof(float)));
    sn_session s = {.model = &m, .device = t.device, .cluster = t.cluster, .job = t.job, .plan = t.plan, .run = t.run};
    assert_ok(sn_export_hf(&s, folder, SN_F32, NULL));
    tiny_close(&t);
    sn_model_close(&m);
}
