/* Context parallelism: whatever ranks share the tokens of a row, losses and weights are those of one rank, to f32's rounding. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "io/safetensors.h"
#include "support/training.h"

enum { STEPS = 5 };

static char data[600], windowed[600];

/* The llama of tests/golden with a window of 6 tokens: its configuration changed, its weights as they are. */
static void make_windowed(const char *folder) {
    json_t *config = json_load_file(TINY_LLAMA "/config.json", 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, "model_type", json_string("mistral"));
    json_object_set_new(config, "sliding_window", json_integer(6));
    assert_ok(sn_make_dirs(folder));
    for (int i = -1; i < 4; i++) {
        static const char *const files[] = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                            "model-00003-of-00003.safetensors", "model.safetensors.index.json"};
        char *path = sn_path_join(folder, i < 0 ? "config.json" : files[i]), from[512], *bytes;
        size_t n;
        if (i < 0) {
            assert_int_equal(json_dump_file(config, path, 0), 0);
        } else {
            snprintf(from, sizeof from, "%s/%s", TINY_LLAMA, files[i]);
            assert_ok(sn_file_read_all(from, 1 << 24, &bytes, &n));
            FILE *f = fopen(path, "wb");
            assert_non_null(f);
            assert_int_equal(fwrite(bytes, 1, n, f), n);
            assert_int_equal(fclose(f), 0);
            sn_free(bytes);
        }
        sn_free(path);
    }
    json_decref(config);
}

static int open_all(void **state) {
    (void)state;
    training_open("context_parallel");
    snprintf(data, sizeof data, "%s", training_path("rows.jsonl"));
    snprintf(windowed, sizeof windowed, "%s", training_path("windowed"));
    training_rows(data, 40);
    make_windowed(windowed);
    return 0;
}

/* Runs with these options; *out: where. */
static void run(const char *model, const char *options, trained *t, const char **out) {
    static int number;
    char text[512];
    snprintf(text, sizeof text, "max_steps=5 cutoff_len=24 adam_epsilon=1e-4 learning_rate=1e-3 %s", options);
    *out = training_path("run%d", number++);
    training_run(model, text, data, *out, NULL, t);
    if (t->status != SN_OK) fail_msg("%s: %s", options, t->error);
    assert_int_equal(t->steps, STEPS);
}

/* The largest |a - b| / (1 + |b|) over all tensors of two results. */
static double difference(const char *a, const char *b) {
    sn_st x, y;
    double most = 0;
    char *adapter = sn_path_join(a, "adapter_model.safetensors");
    const char *stem = sn_path_exists(adapter) ? "adapter_model" : "model";
    assert_ok(sn_st_open_folder(a, stem, &x));
    assert_ok(sn_st_open_folder(b, stem, &y));
    assert_int_equal(x.tensor_count, y.tensor_count);
    for (size_t i = 0; i < x.tensor_count; i++) {
        const sn_st_tensor *p = &x.tensors[i], *q = sn_st_find(&y, p->name);
        size_t bytes;
        assert_non_null(q);
        assert_true(p->dtype == SN_F32 && sn_shape_equal(&p->shape, &q->shape) && sn_shape_bytes(&p->shape, SN_F32, &bytes));
        float *u = sn_alloc(bytes), *v = sn_alloc(bytes);
        assert_ok(sn_st_read(&x, p, 0, u, bytes));
        assert_ok(sn_st_read(&y, q, 0, v, bytes));
        for (size_t k = 0; k < bytes / sizeof *u; k++) {
            double e = fabs((double)u[k] - (double)v[k]) / (1 + fabs((double)v[k]));
            most = e > most || isnan(e) ? e : most;
        }
        sn_free(u);
        sn_free(v);
    }
    sn_st_close(&x);
    sn_st_close(&y);
    sn_free(adapter);
    return most;
}

/* One rank with options `one` against several with `several` instead, both with `options`. */
static void same(const char *model, const char *options, const char *one, const char *several, double tolerance) {
    trained a, b;
    char text[512];
    const char *x, *y;
    snprintf(text, sizeof text, "%s %s", options, one);
    run(model, text, &a, &x);
    snprintf(text, sizeof text, "%s %s", options, several);
    run(model, text, &b, &y);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a.loss[i] - b.loss[i]) <= tolerance * a.loss[i]) || !(fabs(a.norm[i] - b.norm[i]) <= 10 * tolerance * a.norm[i]))
            fail_msg("%s: step %d: loss %.9g, norm %.9g; on one rank %.9g, %.9g", text, i + 1, b.loss[i], b.norm[i], a.loss[i], a.norm[i]);
    double e = difference(x, y);
    if (!(e <= tolerance)) fail_msg("%s: weights differ by %g", text, e);
}

#define TWO "thread_ranks=2 context_parallel_size=2"

static void any_number_of_ranks(void **state) {
    (void)state;
    same(TINY_LLAMA, "full=on", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on per_device_train_batch_size=2", "", "thread_ranks=3 cp=3", 1e-5);
    same(TINY_LLAMA, "full=on", "", "thread_ranks=4 context_parallel=4", 1e-5);
    same(TINY_GPT2, "full=on", "", TWO, 1e-5);
}

static void beside_data_parallel(void **state) {
    (void)state;
    same(TINY_LLAMA, "full=on", "per_device_train_batch_size=2", "thread_ranks=4 context_parallel_size=2", 1e-5);
    for (int stage = 1; stage <= 3; stage += 2) {
        char text[128];
        snprintf(text, sizeof text, "thread_ranks=4 context_parallel_size=2 zero_stage=%d", stage);
        same(TINY_LLAMA, "full=on", "per_device_train_batch_size=2", text, 1e-5);
    }
    same(TINY_LLAMA, "full=on", "", TWO " zero_stage=3", 1e-5);
}

static void of_any_mask(void **state) {
    (void)state;
    same(TINY_LLAMA, "full=on packing=on", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on packing=on per_device_train_batch_size=2", "", "thread_ranks=4 context_parallel_size=4", 1e-5);
    same(windowed, "full=on", "", "thread_ranks=3 context_parallel_size=3 per_device_train_batch_size=1", 1e-5);
    same(windowed, "full=on packing=on", "", TWO, 1e-5);
}

static void with_what_else_there_is(void **state) {
    (void)state;
    same(TINY_LLAMA, "lora=on lora_rank=4", "", TWO, 1e-5);
    same(TINY_LLAMA, "lora=on lora_rank=4 lora_dropout=0.2", "", TWO, 1e-5); /* the same elements are dropped */
    same(TINY_LLAMA, "full=on recompute=all", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on recompute=attention", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on recompute=selective", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on gradient_accumulation_steps=4", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on eval_fraction=0.3", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on precision=bf16", "", TWO, 2e-2);
    same(TINY_LLAMA, "full=on device=cpu-split", "", TWO, 1e-5);
}

static volatile sig_atomic_t stopped;

static void stop_at_third(void *context, const sn_step_report *report) {
    (void)context;
    stopped = report->step == 3;
}

/* Begun on two ranks, ended on one: the same rows, the same losses. */
static void goes_on_without_the_ring(void **state) {
    (void)state;
    trained a, b;
    const char *options = "full=on max_steps=5 cutoff_len=24 adam_epsilon=1e-4 learning_rate=1e-3 logging_steps=1",
               *out = training_path("resumed");
    const sn_train_hooks hooks = {.step = stop_at_third, .stop = &stopped};
    char text[256];
    training_run(TINY_LLAMA, options, data, training_path("whole"), NULL, &a);
    snprintf(text, sizeof text, "%s " TWO, options);
    training_run(TINY_LLAMA, text, data, out, &hooks, &b);
    assert_true(b.status == SN_OK && b.summary.interrupted && b.steps == 3);
    stopped = 0;
    snprintf(text, sizeof text, "%s resume=on", options);
    training_run(TINY_LLAMA, text, data, out, NULL, &b);
    if (b.status != SN_OK) fail_msg("%s", b.error);
    assert_int_equal(b.steps, STEPS);
    for (int i = 0; i < STEPS; i++) assert_true(fabs(a.loss[i] - b.loss[i]) <= 1e-5 * a.loss[i]);
    assert_true(difference(training_path("whole"), out) <= 1e-5);
}

static void on_quantised_weights(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    const char *gguf = training_path("tiny.gguf");
    config.intermediate_size = 64;
    tiny_write(&config, training_path("tiny"), gguf, SN_Q4_0);
    same(gguf, "qlora=on lora_rank=4", "", TWO, 1e-5);
}

static void with_updates_inside_backward(void **state) {
    (void)state;
    same(TINY_LLAMA, "full=on gradient_release=on max_grad_norm=0", "", TWO, 1e-5);
    same(TINY_LLAMA, "full=on gradient_release=on max_grad_norm=0", "per_device_train_batch_size=2",
         "thread_ranks=4 context_parallel_size=2 zero_stage=3", 1e-5);
}

/* Which token stands where: each rank's own, ascending, all of them once; the pairs of a causal mask even. */
static void tokens_are_dealt_evenly(void **state) {
    (void)state;
    enum { TOKENS = 96 };
    for (int dp = 1; dp <= 2; dp++)
        for (int cp = 2; cp <= 4; cp++) {
            const sn_mesh mesh = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = dp, [SN_MESH_CP] = cp}});
            const int rows = TOKENS / dp, n = rows / cp, run = rows / (2 * cp);
            sn_split split = {0};
            bool seen[TOKENS] = {false};
            split.axis[SN_MESH_DP] = (sn_split_axis){.kind = SN_SHARD, .unit = 1};
            split.axis[SN_MESH_CP] = (sn_split_axis){.kind = SN_SHARD, .at = SN_DEAL_FOLDED, .unit = run};
            for (int rank = 0; rank < dp * cp; rank++) {
                int64_t before = -1, pairs = 0;
                const sn_shape whole = sn_shape_of(TOKENS);
                assert_int_equal(sn_local_shape(&whole, &split, &mesh, rank, NULL).d[0], n);
                for (int i = 0; i < n; i++) {
                    int64_t place = sn_split_place(&split, &mesh, rank, 0, TOKENS, i);
                    assert_true(place > before && place < TOKENS && !seen[place] && place / rows == rank / cp);
                    seen[place] = true;
                    before = place;
                    pairs += place % rows + 1;
                }
                assert_int_equal(pairs, (int64_t)n * (rows + 1) / 2);
            }
        }
}

/* The same step's evaluation, over the ranks' tokens. */
static void evaluation(void **state) {
    (void)state;
    trained a, b;
    const char *ignored;
    run(TINY_LLAMA, "full=on eval_fraction=0.3", &a, &ignored);
    run(TINY_LLAMA, "full=on eval_fraction=0.3 " TWO, &b, &ignored);
    assert_true(isfinite(a.summary.eval_loss) && fabs(a.summary.eval_loss - b.summary.eval_loss) <= 1e-5 * a.summary.eval_loss);
}

static void rows_that_cannot_be_cut(void **state) {
    (void)state;
    trained t;
    training_run(TINY_LLAMA, "full=on max_steps=1 cutoff_len=22 " TWO, data, training_path("odd"), NULL, &t);
    assert_int_equal(t.status, SN_ERR_USAGE);
    assert_non_null(strstr(t.error, "context_parallel_size 2 cuts the 22 tokens of a micro-batch into 4 runs"));
    training_run(TINY_LLAMA, "full=on max_steps=1 cutoff_len=24 thread_ranks=3 context_parallel_size=2", data, training_path("odd"), NULL,
                 &t);
    assert_int_equal(t.status, SN_ERR_USAGE);
    assert_non_null(strstr(t.error, "context_parallel_size is 2, which does not divide 3 ranks"));
}

/* Bytes of a class at the peak of a rank's plan, for rows of this many tokens. */
static uint64_t planned(const char *options, sn_class class_of) {
    sn_model m;
    sn_session s;
    sn_options *recipe = tiny_recipe(options);
    assert_ok(sn_model_open(TINY_LLAMA, &m));
    assert_ok(sn_train_plan(&m, recipe, NULL, NULL, &s));
    uint64_t bytes = s.plan->bill.by_class[SN_TIER_DEVICE][class_of];
    sn_session_close(&s);
    sn_model_close(&m);
    sn_options_close(recipe);
    return bytes;
}

static void activations_fall_with_the_ranks(void **state) {
    (void)state;
    const char *shape = "threads=1 full=on recompute=none cutoff_len=4096";
    char text[256];
    uint64_t one = planned(shape, SN_CLASS_ACTIVATIONS);
    for (int n = 2; n <= 8; n *= 2) {
        snprintf(text, sizeof text, "%s thread_ranks=%d context_parallel_size=%d", shape, n, n);
        uint64_t part = planned(text, SN_CLASS_ACTIVATIONS);
        if ((double)part > 1.1 * (double)one / n)
            fail_msg("%d ranks: %llu of %llu bytes", n, (unsigned long long)part, (unsigned long long)one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks),
        cmocka_unit_test(beside_data_parallel),
        cmocka_unit_test(of_any_mask),
        cmocka_unit_test(with_what_else_there_is),
        cmocka_unit_test(evaluation),
        cmocka_unit_test(rows_that_cannot_be_cut),
        cmocka_unit_test(on_quantised_weights),
        cmocka_unit_test(goes_on_without_the_ring),
        cmocka_unit_test(with_updates_inside_backward),
        cmocka_unit_test(tokens_are_dealt_evenly),
        cmocka_unit_test(activations_fall_with_the_ranks),
    };
    return cmocka_run_group_tests(tests, open_all, training_close);
}
