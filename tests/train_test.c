/* Training from end to end on tiny models: the files it writes, and the faults that people met elsewhere. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "io/safetensors.h"
#include "support/training.h"

static void ok(const trained *t) {
    if (t->status != SN_OK) fail_msg("training failed: %s", t->error);
}

static void assert_close(double a, double b, double tolerance) {
    if (!(fabs(a - b) <= tolerance)) fail_msg("%.12g and %.12g differ by %g, more than %g", a, b, a - b, tolerance);
}

static void assert_exists(const char *out, const char *name) {
    char *path = sn_path_join(out, name);
    if (!sn_path_exists(path)) fail_msg("%s is missing", path);
    sn_free(path);
}

static void records_and_results(void **state) {
    (void)state;
    static const char *const keys[] = {"planned_bytes", "peak_bytes", "tokens_per_s", "first_loss", "last_loss"};
    static const char *const models[] = {TINY_LLAMA, TINY_GPT2};
    const char *data = training_path("records.jsonl");
    training_rows(data, 12);
    for (int i = 0; i < 4; i++) {
        trained t;
        sn_model m;
        const char *out = training_path("records%d", i);
        training_run(models[i / 2], i % 2 ? "lora=on lora_rank=2 max_steps=5 gguf=on" : "max_steps=5 gguf=on eval_fraction=0.2", data, out,
                     NULL, &t);
        ok(&t);
        assert_int_equal(t.steps, 5);
        assert_int_equal(t.summary.steps, 5);
        assert_true(t.summary.first_loss == t.loss[0] && t.summary.last_loss == t.loss[4]);
        assert_true(t.summary.planned_bytes > 0 && t.summary.peak_bytes > 0);
        char *path = sn_path_join(out, "summary.json");
        json_t *summary = json_load_file(path, 0, NULL);
        for (size_t k = 0; k < 5; k++) assert_true(json_is_number(json_object_get(summary, keys[k])));
        json_decref(summary);
        sn_free(path);
        assert_exists(out, "runs");
        assert_exists(out, "checkpoint-5/manifest.json");
        assert_exists(out, "model.gguf");
        if (i % 2) assert_exists(out, "adapter_config.json");
        assert_exists(out, i % 2 ? "adapter_model.safetensors" : "config.json");
        assert_ok(sn_model_open(i % 2 ? training_path("records%d/model.gguf", i) : out, &m));
        sn_model_close(&m);
    }
}

/* Micro-batches weigh by their label tokens: one of 1 and one of 3 give (a + 3 b) / 4. */
static void tokens_weigh_alike(void **state) {
    (void)state;
    static const char a[] = "{\"input_ids\": [5, 9, 7, 11], \"labels\": [-100, -100, -100, 11]}\n";
    static const char b[] = "{\"input_ids\": [4, 8, 15, 16], \"labels\": [-100, 8, 15, 16]}\n";
    char both[300];
    trained one, three, big, small;
    snprintf(both, sizeof both, "%s%s", a, b);
    training_text(training_path("a.jsonl"), a);
    training_text(training_path("b.jsonl"), b);
    training_text(training_path("ab.jsonl"), both);
    training_run(TINY_LLAMA, "max_steps=1", training_path("a.jsonl"), training_path("w1"), NULL, &one);
    training_run(TINY_LLAMA, "max_steps=1", training_path("b.jsonl"), training_path("w3"), NULL, &three);
    training_run(TINY_LLAMA, "max_steps=1 shuffle=off per_device_train_batch_size=2", training_path("ab.jsonl"), training_path("wb"), NULL,
                 &big);
    training_run(TINY_LLAMA, "max_steps=1 shuffle=off gradient_accumulation_steps=2", training_path("ab.jsonl"), training_path("ws"), NULL,
                 &small);
    ok(&one), ok(&three), ok(&big), ok(&small);
    assert_true(fabs(one.loss[0] - three.loss[0]) > 1e-3);
    assert_close(big.loss[0], (one.loss[0] + 3 * three.loss[0]) / 4, 1e-6);
    assert_close(small.loss[0], big.loss[0], 1e-6);
    assert_close(small.norm[0], big.norm[0], 1e-6);
}

/* 8 rows a step in every split over micro-batches and ranks. */
static void splits_agree(void **state) {
    (void)state;
    static const char *const models[] = {TINY_LLAMA, TINY_GPT2};
    training_rows(training_path("splits.jsonl"), 24);
    for (int family = 0; family < 2; family++) {
        trained first, t;
        for (int accumulation = 1; accumulation <= 4; accumulation *= 2)
            for (int ranks = 1; ranks <= 2; ranks++) {
                char options[256];
                bool is_first = accumulation == 1 && ranks == 1;
                snprintf(options, sizeof options,
                         "max_steps=3 gradient_accumulation_steps=%d thread_ranks=%d per_device_train_batch_size=%d", accumulation, ranks,
                         8 / accumulation / ranks);
                training_run(models[family], options, training_path("splits.jsonl"), training_path("s%d%d%d", family, accumulation, ranks),
                             NULL, &t);
                ok(&t);
                if (is_first) first = t;
                assert_int_equal(t.steps, 3);
                assert_int_equal(t.summary.tokens, first.summary.tokens);
                for (int s = 0; s < 3; s++) {
                    assert_close(t.loss[s], first.loss[s], 1e-6 * (s ? 10 : 1)); /* after an update rounding has gone through Adam */
                    assert_close(t.norm[s], first.norm[s], (s ? 1e-4 : 1e-6) * (1 + first.norm[s]));
                }
            }
    }
}

/* Every number of an exported file is finite. */
static void assert_finite(const char *path) {
    sn_st st;
    static float x[4096];
    assert_ok(sn_st_open(path, &st));
    for (size_t i = 0; i < st.tensor_count; i++) {
        assert_true(st.tensors[i].dtype == SN_F32 && st.tensors[i].bytes <= sizeof x);
        assert_ok(sn_st_read(&st, &st.tensors[i], 0, x, (size_t)st.tensors[i].bytes));
        for (size_t k = 0; k < st.tensors[i].bytes / sizeof *x; k++)
            if (!isfinite(x[k])) fail_msg("%s: %s[%zu] is %g", path, st.tensors[i].name, k, (double)x[k]);
    }
    sn_st_close(&st);
}

static void all_rows_masked(void **state) {
    (void)state;
    sn_str row = {0}, text = {0};
    trained t;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 36; k++)
            sn_str_printf(&row, "%s%d", k ? ", " : i ? "], \"labels\": [" : "{\"input_ids\": [", i && k < 32 ? -100 : 3 + k % 20);
    sn_str_add(&row, "]}\n");
    training_text(training_path("masked.jsonl"), row.data);
    training_run(TINY_LLAMA, "max_steps=2", training_path("masked.jsonl"), training_path("masked"), NULL, &t);
    assert_int_equal(t.status, SN_ERR_DATA);
    assert_false(sn_path_exists(training_path("masked/model.safetensors")));
    sn_str_printf(&text, "%s{\"input_ids\": [3, 4, 5]}\n", row.data);
    training_text(training_path("masked1.jsonl"), text.data);
    training_warnings();
    training_run(TINY_LLAMA, "max_steps=2", training_path("masked1.jsonl"), training_path("masked1"), NULL, &t);
    ok(&t);
    assert_true(training_warnings() >= 1); /* counted and said */
    assert_int_equal(t.summary.tokens, 2 * 3);
    assert_finite(training_path("masked1/model.safetensors"));
    sn_str_free(&row);
    sn_str_free(&text);
}

/* Rows of no token and of one, which predict nothing, beside one that does: the loss is that one's alone. */
static void rows_without_a_prediction(void **state) {
    (void)state;
    static const char row[] = "{\"input_ids\": [3, 4, 5, 6]}\n";
    char text[200];
    trained t, alone;
    snprintf(text, sizeof text, "{\"input_ids\": []}\n{\"input_ids\": [7]}\n%s", row);
    training_text(training_path("few.jsonl"), text);
    training_text(training_path("one.jsonl"), row);
    for (int ranks = 1; ranks <= 2; ranks++) {
        char options[100];
        snprintf(options, sizeof options, "max_steps=2 gradient_accumulation_steps=2 thread_ranks=%d", ranks);
        training_run(TINY_LLAMA, options, training_path("few.jsonl"), training_path("few%d", ranks), NULL, &t);
        training_run(TINY_LLAMA, "max_steps=2", training_path("one.jsonl"), training_path("one%d", ranks), NULL, &alone);
        ok(&t), ok(&alone);
        for (int i = 0; i < 2; i++) assert_close(t.loss[i], alone.loss[i], 1e-6);
        assert_finite(training_path("few%d/model.safetensors", ranks));
    }
}

static void bad_ids(void **state) {
    (void)state;
    static const char *const rows[] = {"{\"input_ids\": [3, 24, 5]}\n", "{\"input_ids\": [3, 4, 5], \"labels\": [-100, 4, 24]}\n"};
    for (int i = 0; i < 2; i++) {
        trained t;
        training_text(training_path("bad.jsonl"), rows[i]);
        training_run(TINY_LLAMA, "max_steps=2", training_path("bad.jsonl"), training_path("bad"), NULL, &t);
        assert_int_equal(t.status, SN_ERR_DATA);
        assert_non_null(strstr(t.error, "24 is outside the vocabulary"));
    }
}

/* A packed row: what stands in one sample changes no bit of the others. */
static void packed_samples_are_apart(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++) {
        sn_model_config config = family ? tiny_gpt2() : tiny_llama();
        float first[48];
        tiny t;
        tiny_open(&t, &config, "threads=1 packing=on", "cpu", true);
        int index = sn_job_graph_index(t.job, "evaluate");
        tiny_fill(&t, sn_job_role_index(t.job, SN_ROLE_EVALUATE), 0, 0);
        int32_t *ids = sn_run_io(t.run, index, "ids", 0, NULL);
        const float *loss = sn_run_io(t.run, index, "token_loss", 0, NULL);
        assert_ok(sn_run_program(t.run, index, 0));
        memcpy(first, loss, sizeof first);
        for (int i = 0; i < 17; i++) ids[i] = (ids[i] + 1 + i) % TINY_VOCAB;
        assert_ok(sn_run_program(t.run, index, 0));
        assert_true(memcmp(first, loss, 17 * sizeof *first) != 0);
        assert_true(loss[16] == 0); /* the last token of a sample predicts nothing */
        assert_memory_equal(first + 17, loss + 17, (48 - 17) * sizeof *first);
        tiny_close(&t);
    }
    trained packed, apart;
    training_rows(training_path("pack.jsonl"), 6);
    training_run(TINY_LLAMA, "max_steps=1 packing=on cutoff_len=64", training_path("pack.jsonl"), training_path("pack"), NULL, &packed);
    training_run(TINY_LLAMA, "max_steps=1 per_device_train_batch_size=6", training_path("pack.jsonl"), training_path("apart"), NULL,
                 &apart);
    ok(&packed), ok(&apart);
    assert_int_equal(packed.summary.tokens, apart.summary.tokens);
    assert_close(packed.loss[0], apart.loss[0], 1e-6);
    assert_close(packed.norm[0], apart.norm[0], 1e-5);
}

static void short_and_uneven(void **state) {
    (void)state;
    trained t, one;
    training_rows(training_path("three.jsonl"), 3);
    training_run(TINY_LLAMA, "num_train_epochs=1 per_device_train_batch_size=8", training_path("three.jsonl"), training_path("three"), NULL,
                 &t);
    ok(&t);
    assert_int_equal(t.summary.steps, 1);
    assert_true(t.summary.tokens >= 12);
    training_rows(training_path("thirteen.jsonl"), 13);
    training_run(TINY_LLAMA, "num_train_epochs=1 thread_ranks=4", training_path("thirteen.jsonl"), training_path("r4"), NULL, &t);
    training_run(TINY_LLAMA, "num_train_epochs=1 per_device_train_batch_size=4", training_path("thirteen.jsonl"), training_path("r1"), NULL,
                 &one);
    ok(&t), ok(&one);
    assert_int_equal(t.summary.steps, 4);
    assert_int_equal(one.summary.steps, 4);
    assert_int_equal(t.summary.tokens, one.summary.tokens);
    for (int i = 0; i < 4; i++) assert_close(t.loss[i], one.loss[i], 1e-5);
}

/* Zero gradients, learning rate 1, decay 0.1: matrices shrink by a tenth, norms and biases stay. */
static void decay_is_of_matrices(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++) {
        sn_model_config config = family ? tiny_gpt2() : tiny_llama();
        float before[4096];
        int matrices = 0, vectors = 0;
        tiny t;
        tiny_open(&t, &config, "threads=1 weight_decay=0.1 gradient_accumulation_steps=2", "cpu", true);
        int update = sn_job_graph_index(t.job, "update");
        float *hyper = sn_run_io(t.run, update, "hyper", 0, NULL);
        memcpy(hyper, (float[]){1, 0.1f, 0.001f, 1, 1, 0, 0, 0}, 32);
        for (size_t p = 0; p < t.job->n_persistent; p++) {
            const sn_persistent *e = &t.job->persistent[p];
            if (e->class_of != SN_CLASS_WEIGHTS) continue;
            float *x = sn_run_persistent(t.run, (sn_pid)p);
            size_t n = t.plan->persistent[p].bytes / sizeof *x;
            assert_true(n <= 4096);
            for (size_t k = 0; k < t.job->n_persistent; k++) { /* Adam's states too are zero again */
                const sn_persistent *s = &t.job->persistent[k];
                if (s->class_of == SN_CLASS_GRADIENTS || s->class_of == SN_CLASS_OPTIMIZER)
                    memset(sn_run_persistent(t.run, (sn_pid)k), 0, t.plan->persistent[k].bytes);
            }
            memcpy(before, x, n * sizeof *x);
            assert_ok(sn_run_program(t.run, update, 0));
            bool matrix = e->shape.rank == 2;
            for (size_t i = 0; i < n; i++) {
                if (matrix) assert_close(x[i], 0.9 * before[i], 1e-7 * fabs(before[i]));
                else assert_true(x[i] == before[i]);
            }
            matrices += matrix;
            vectors += !matrix;
        }
        assert_true(matrices > 8 && vectors > 4);
        tiny_close(&t);
    }
}

static void make_huge(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = 1e30f;
}
static void make_large(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= 64;
}
static void make_none(float *x, int64_t n) { (void)x, (void)n; }
static void make_nan(float *x, int64_t n) { x[n / 2] = NAN; }

static void overflow_of_fp16(void **state) {
    (void)state;
    trained t;
    training_rows(training_path("fp16.jsonl"), 8);
    training_altered(TINY_LLAMA, training_path("huge"), "model.norm.weight", make_huge);
    training_run(training_path("huge"), "precision=fp16 max_steps=60 warmup_steps=10", training_path("fp16.jsonl"),
                 training_path("huge-out"), NULL, &t);
    assert_int_equal(t.status, SN_ERR_NUMERIC);
    assert_non_null(strstr(t.error, "20"));
    assert_int_equal(t.summary.skipped, 20);
    assert_int_equal(t.summary.steps, 0);
    for (int i = 1; i < t.steps; i++) assert_true(t.rate[i] == t.rate[0]);
    assert_false(sn_path_exists(training_path("huge-out/model.safetensors")));
    /* Some overflow at first: those steps move neither the schedule nor Adam's count. */
    training_altered(TINY_LLAMA, training_path("large"), "model.norm.weight", make_large);
    training_run(training_path("large"), "precision=fp16 max_steps=30 warmup_steps=10 learning_rate=1e-4", training_path("fp16.jsonl"),
                 training_path("large-out"), NULL, &t);
    ok(&t);
    assert_true(t.summary.skipped > 0 && t.summary.skipped < 20);
    assert_int_equal(t.summary.steps + t.summary.skipped, 30);
    trained straight;
    training_run(training_path("large"), "max_steps=30 warmup_steps=10 learning_rate=1e-4", training_path("fp16.jsonl"),
                 training_path("straight-out"), NULL, &straight);
    ok(&straight);
    int applied = 0;
    for (int i = 0; i < 30; i++) { /* a gradient that is not finite has no norm in the metrics */
        assert_true(t.rate[i] == straight.rate[applied]);
        applied += isfinite(t.norm[i]);
    }
    assert_int_equal(applied, t.summary.steps);
    assert_false(isfinite(t.norm[0]));
}

static double largest_difference(const char *a, const char *b, const char *name) {
    sn_st x, y;
    static float u[4096], v[4096];
    double most = 0;
    assert_ok(sn_st_open(a, &x));
    assert_ok(sn_st_open(b, &y));
    const sn_st_tensor *p = sn_st_find(&x, name), *q = sn_st_find(&y, name);
    assert_true(p && q && p->dtype == SN_F32 && q->dtype == SN_F32 && p->bytes == q->bytes && p->bytes <= sizeof u);
    assert_ok(sn_st_read(&x, p, 0, u, (size_t)p->bytes));
    assert_ok(sn_st_read(&y, q, 0, v, (size_t)q->bytes));
    for (size_t i = 0; i < p->bytes / sizeof *u; i++) most = fmax(most, fabs((double)u[i] - v[i]));
    sn_st_close(&x);
    sn_st_close(&y);
    return most;
}

typedef struct first_update {
    volatile sig_atomic_t stop;
    int skipped;
} first_update;

static void stop_after_it(void *context, const sn_step_report *report) {
    first_update *f = context;
    f->stop = isfinite(report->grad_norm);
    f->skipped += !f->stop;
}

/* Adam's count too stands still while steps overflow: its first update moves every weight that has a gradient by the whole
 * learning rate (of a count of 10 it would be half of it). */
static void skipped_steps_are_not_counted(void **state) {
    (void)state;
    trained t;
    first_update f = {0};
    sn_train_hooks hooks = {.step = stop_after_it, .context = &f, .stop = &f.stop};
    training_rows(training_path("count.jsonl"), 8);
    training_altered(TINY_LLAMA, training_path("large"), "model.norm.weight", make_large);
    training_run(training_path("large"), "precision=fp16 max_steps=30 learning_rate=1e-3 lr_scheduler_type=constant weight_decay=0",
                 training_path("count.jsonl"), training_path("count"), &hooks, &t);
    ok(&t);
    assert_true(f.skipped >= 3);
    assert_int_equal(t.summary.skipped, f.skipped);
    assert_int_equal(t.summary.steps, 1);
    double moved = largest_difference(training_path("count/model.safetensors"), training_path("large/model.safetensors"),
                                      "model.layers.0.self_attn.v_proj.weight");
    assert_close(moved, 1e-3, 1e-5);
}

/* Steps far below half a step of bf16 at 1.0 (0.004): the f32 masters take them, as a run in f32 does. */
static void small_steps_in_bf16_add_up(void **state) {
    (void)state;
    trained f32, bf16;
    static const char *const name = "model.layers.0.input_layernorm.weight";
    static const char *const options = "max_steps=20 learning_rate=5e-5 lr_scheduler_type=constant shuffle=off precision=%s";
    char text[200];
    training_rows(training_path("small.jsonl"), 1);
    training_altered(TINY_LLAMA, training_path("before"), name, make_none);
    snprintf(text, sizeof text, options, "f32");
    training_run(TINY_LLAMA, text, training_path("small.jsonl"), training_path("small32"), NULL, &f32);
    snprintf(text, sizeof text, options, "bf16");
    training_run(TINY_LLAMA, text, training_path("small.jsonl"), training_path("small16"), NULL, &bf16);
    ok(&f32), ok(&bf16);
    const char *a = training_path("small32/model.safetensors"), *b = training_path("small16/model.safetensors");
    assert_true(largest_difference(a, training_path("before/model.safetensors"), name) > 5e-4);
    assert_true(largest_difference(a, b, name) < 2e-4);
}

static void nan_guard(void **state) {
    (void)state;
    static const char *const options[] = {"max_steps=40", "max_steps=40 lora=on", "max_steps=40 precision=bf16"};
    training_rows(training_path("nan.jsonl"), 8);
    training_altered(TINY_LLAMA, training_path("nan"), "model.layers.1.mlp.up_proj.weight", make_nan);
    for (int i = 0; i < 3; i++) {
        trained t;
        const char *out = training_path("nan-out%d", i);
        training_run(training_path("nan"), options[i], training_path("nan.jsonl"), out, NULL, &t);
        assert_int_equal(t.status, SN_ERR_NUMERIC);
        if (!strstr(t.error, "model.layers.1.mlp.up_proj.weight")) fail_msg("'%s' does not name the weight", t.error);
        assert_int_equal(t.summary.skipped, 20);
        assert_int_equal(t.summary.steps, 0);
        assert_false(sn_path_exists(training_path("nan-out%d/model.safetensors", i)));
        assert_false(sn_path_exists(training_path("nan-out%d/adapter_model.safetensors", i)));
        assert_false(sn_path_exists(training_path("nan-out%d/checkpoint-20", i)));
    }
}

/* Where updates are made before all gradients are known, a NaN cannot be skipped: the run ends, and finite weights are left. */
static void nan_without_a_guard(void **state) {
    (void)state;
    trained t;
    training_rows(training_path("late.jsonl"), 8);
    training_altered(TINY_LLAMA, training_path("late"), "model.layers.1.mlp.up_proj.weight", make_nan);
    training_run(training_path("late"), "max_steps=40 gradient_release=on max_grad_norm=0", training_path("late.jsonl"),
                 training_path("late-out"), NULL, &t);
    assert_int_equal(t.status, SN_ERR_NUMERIC);
    if (!strstr(t.error, "step 1: a gradient is not finite") || !strstr(t.error, "last checkpoint")) fail_msg("'%s'", t.error);
    assert_int_equal(t.summary.steps, 0);
    assert_false(sn_path_exists(training_path("late-out/model.safetensors")));
}

static void norm_is_before_clipping(void **state) {
    (void)state;
    trained free_run, clipped, two;
    training_rows(training_path("clip.jsonl"), 8);
    training_run(TINY_LLAMA, "max_steps=2 max_grad_norm=0 per_device_train_batch_size=2", training_path("clip.jsonl"), training_path("c0"),
                 NULL, &free_run);
    training_run(TINY_LLAMA, "max_steps=2 max_grad_norm=0.001 per_device_train_batch_size=2", training_path("clip.jsonl"),
                 training_path("c1"), NULL, &clipped);
    training_run(TINY_LLAMA, "max_steps=2 max_grad_norm=0.001 thread_ranks=2", training_path("clip.jsonl"), training_path("c2"), NULL,
                 &two);
    ok(&free_run), ok(&clipped), ok(&two);
    assert_true(clipped.norm[0] > 0.01 && clipped.norm[0] == free_run.norm[0]);
    assert_close(two.norm[0], clipped.norm[0], 1e-6);
}

/* Recomputation with a frozen embedding: the adapter is the same to the bit, and it did learn. */
static void lora_under_recompute(void **state) {
    (void)state;
    static const char *const kinds[] = {"none", "attention", "all"};
    static const char *const models[] = {TINY_LLAMA, TINY_GPT2};
    training_rows(training_path("lora.jsonl"), 8);
    for (int family = 0; family < 2; family++) {
        char first[65] = "", digest[65];
        for (int k = 0; k < 3; k++) {
            char options[128];
            trained t;
            snprintf(options, sizeof options, "lora=on lora_rank=2 lora_dropout=0.1 max_steps=1 learning_rate=0.01 recompute=%s", kinds[k]);
            training_run(models[family], options, training_path("lora.jsonl"), training_path("lora%d%d", family, k), NULL, &t);
            ok(&t);
            training_digest(training_path("lora%d%d/adapter_model.safetensors", family, k), k ? digest : first);
            if (k) assert_string_equal(digest, first);
        }
        sn_st st;
        int factors = 0;
        assert_ok(sn_st_open(training_path("lora%d0/adapter_model.safetensors", family), &st));
        for (size_t i = 0; i < st.tensor_count; i++) {
            float x[4096];
            bool moved = false;
            if (!strstr(st.tensors[i].name, "lora_B")) continue;
            assert_true(st.tensors[i].bytes <= sizeof x);
            assert_ok(sn_st_read(&st, &st.tensors[i], 0, x, (size_t)st.tensors[i].bytes));
            for (size_t k = 0; k < st.tensors[i].bytes / sizeof *x; k++) moved |= x[k] != 0;
            if (!moved) fail_msg("%s is still zero", st.tensors[i].name);
            factors++;
        }
        assert_int_equal(factors, family ? 4 : 14); /* one layer, two layers */
        sn_st_close(&st);
    }
}

/* With everything dropped LoRA adds nothing, forward or backward. */
static void everything_dropped(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++) {
        sn_model_config config = family ? tiny_gpt2() : tiny_llama();
        tiny dropped, silent;
        float norm, other;
        tiny_open(&dropped, &config, "threads=1 lora=on lora_dropout=0.9999999", "cpu", true);
        tiny_open(&silent, &config, "threads=1 lora=on lora_alpha=0", "cpu", true);
        assert_true(tiny_step(&dropped, 0, &norm) == tiny_step(&silent, 0, &other));
        assert_true(norm == 0 && other == 0);
        tiny_close(&dropped);
        tiny_close(&silent);
    }
}

static void cpu_split_is_cpu(void **state) {
    (void)state;
    static const char *const options[] = {"max_steps=6", "max_steps=6 lora=on recompute=all precision=bf16 gradient_accumulation_steps=2"};
    training_rows(training_path("split.jsonl"), 12);
    for (int i = 0; i < 2; i++) {
        char text[256];
        trained cpu, split;
        training_run(TINY_LLAMA, options[i], training_path("split.jsonl"), training_path("cpu%d", i), NULL, &cpu);
        snprintf(text, sizeof text, "device=cpu-split %s", options[i]);
        training_run(TINY_LLAMA, text, training_path("split.jsonl"), training_path("cpu-split%d", i), NULL, &split);
        ok(&cpu), ok(&split);
        assert_int_equal(cpu.steps, 6);
        assert_memory_equal(cpu.loss, split.loss, sizeof cpu.loss);
        assert_memory_equal(cpu.norm, split.norm, sizeof cpu.norm);
    }
}

static int start(void **state) {
    (void)state;
    training_open("train");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_and_results),
        cmocka_unit_test(tokens_weigh_alike),
        cmocka_unit_test(splits_agree),
        cmocka_unit_test(all_rows_masked),
        cmocka_unit_test(rows_without_a_prediction),
        cmocka_unit_test(bad_ids),
        cmocka_unit_test(packed_samples_are_apart),
        cmocka_unit_test(short_and_uneven),
        cmocka_unit_test(decay_is_of_matrices),
        cmocka_unit_test(overflow_of_fp16),
        cmocka_unit_test(skipped_steps_are_not_counted),
        cmocka_unit_test(small_steps_in_bf16_add_up),
        cmocka_unit_test(nan_guard),
        cmocka_unit_test(nan_without_a_guard),
        cmocka_unit_test(norm_is_before_clipping),
        cmocka_unit_test(lora_under_recompute),
        cmocka_unit_test(everything_dropped),
        cmocka_unit_test(cpu_split_is_cpu),
    };
    return cmocka_run_group_tests(tests, start, training_close);
}
