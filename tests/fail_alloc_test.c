/* Every allocation of the library fails once, each in turn: always an error status with a message, never a crash; leaks are
 * the sanitizers' to find. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "engine/compare.h"
#include "engine/session.h"
#include "engine/train.h"
#include "io/dataset.h"
#include "support/tiny.h"

#define FILES SNUG_SOURCE_DIR "/tests/golden/"

typedef sn_status (*work_fn)(const void *context);

/* Runs `work` with each of its allocations failing in turn. `spare`: so many of them are made for speed alone, and done without. */
static void fail_each(const char *name, long spare, work_fn work, const void *context) {
    sn_alloc_fail_at(-1);
    sn_status s = work(context);
    long needed = sn_alloc_fail_at(-1);
    if (s != SN_OK) fail_msg("%s: %s", name, sn_error_text());
    assert_true(needed > 0);
    for (long n = 0; n < needed; n++) {
        sn_alloc_fail_at(n);
        s = work(context);
        sn_alloc_fail_at(-1);
        if (s == SN_OK && spare-- > 0) continue;
        if (s == SN_OK) fail_msg("%s: success although allocation %ld of %ld failed", name, n, needed);
        if (s != SN_ERR_NO_MEMORY)
            fail_msg("%s: allocation %ld of %ld failed: status '%s', '%s'", name, n, needed, sn_status_name(s), sn_error_text());
        if (!*sn_error_text()) fail_msg("%s: allocation %ld of %ld failed: no message", name, n, needed);
    }
}

static sn_status new_recipe(const void *context) {
    (void)context;
    sn_options *o;
    SN_TRY(sn_recipe_new(&o));
    sn_options_close(o);
    return SN_OK;
}

static void recipes(void **state) {
    (void)state;
    fail_each("recipe", 0, new_recipe, NULL);
}

typedef struct task {
    sn_model_config config;
    sn_options *recipe;
    const char *device;
    int ranks;
} task;

static sn_status plan_and_open(const void *context) {
    const task *t = context;
    sn_model model = {.path = "tiny", .config = (sn_model_config *)&t->config};
    sn_session s = {.model = &model, .ranks = t->ranks};
    sn_training_shape shape = {.tokens = 16, .evaluate = true};
    sn_status status = sn_device_find(t->device, 1, &s.device);
    s.cluster.addresses = s.device.shape.addresses;
    if (status == SN_OK) status = sn_session_mesh(&s, t->recipe);
    if (status == SN_OK) status = sn_job_for_training(&t->config, NULL, &shape, t->recipe, &s.cluster, NULL, &s.job);
    if (status == SN_OK) status = sn_session_plan(&s);
    if (status == SN_OK && t->ranks == 1) status = sn_run_open(s.plan, &s.device, NULL, &s.run);
    sn_session_close(&s);
    return status;
}

static void jobs(void **state) {
    (void)state;
    static const char *const options[] = {"recompute=all gradient_accumulation_steps=2",
                                          "lora=on lora_dropout=0.1 precision=bf16 recompute=every:2",
                                          "precision=fp16 optimizer=sgd momentum=0.9"};
    static const char *const devices[] = {"cpu", "cpu-split", "null"};
    for (int i = 0; i < 3; i++) {
        task t = {.config = i == 1 ? tiny_gpt2() : tiny_llama(),
                  .recipe = tiny_recipe(options[i]),
                  .device = devices[i],
                  .ranks = i == 2 ? 2 : 1};
        t.config.num_layers = 1;
        fail_each(options[i], 0, plan_and_open, &t);
        sn_options_close(t.recipe);
    }
}

/* Stages, and what is beside them: the rank that needs most is found, too. */
static void stages(void **state) {
    (void)state;
    static const char *const options[] = {"pipeline_parallel_size=2 gradient_accumulation_steps=2",
                                          "pp=2 tp=2 sequence_parallel=on optimizer=adamw_8bit gradient_accumulation_steps=2 zero_stage=2"};
    for (int i = 0; i < 2; i++) {
        task t = {.config = tiny_llama(), .recipe = tiny_recipe(options[i]), .device = "cpu", .ranks = i ? 8 : 2};
        t.config.vocab_size = 256;
        fail_each(options[i], 0, plan_and_open, &t);
        sn_options_close(t.recipe);
    }
}

static sn_status compare_cluster(const void *context) {
    const task *t = context;
    sn_model model = {.path = "tiny", .config = (sn_model_config *)&t->config};
    sn_comparison c;
    sn_str text = {0};
    SN_TRY(sn_compare_training(&model, t->recipe, &c));
    sn_comparison_print(&c, &text);
    sn_comparison_json(&c, &text);
    sn_status s = text.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot print") : SN_OK;
    sn_str_free(&text);
    sn_comparison_free(&c);
    return s;
}

static sn_status plan_cluster(const void *context) {
    const task *t = context;
    sn_model model = {.path = "tiny", .config = (sn_model_config *)&t->config};
    sn_session s;
    SN_TRY(sn_train_plan(&model, t->recipe, NULL, NULL, &s));
    sn_session_close(&s);
    return SN_OK;
}

static void clusters(void **state) {
    (void)state;
    task t = {.config = tiny_llama(),
              .recipe = tiny_recipe("threads=1 cutoff_len=8 ranks=3 zero_stage=3 precision=bf16 device_shape=h100-80g recompute=all")};
    t.config.num_layers = 1;
    t.config.vocab_size = 1009;
    fail_each("cluster", 0, plan_cluster, &t);
    sn_options_close(t.recipe);
    t.recipe =
        tiny_recipe("threads=1 cutoff_len=8 lora=on moment_dtype=bf16 precision=bf16 recompute=light zero_stage=1 device_shape=h100-80g");
    t.config.vocab_size = 97;
    size_t choices = 0; /* one whose text cannot be parsed for want of memory counts as not made yet, and gets a row */
    for (size_t i = 0; i < sn_n_passes; i++) choices += sn_passes[i]->n_choices;
    fail_each("comparison", (long)choices, compare_cluster, &t);
    sn_options_close(t.recipe);
}

static sn_status read_deepspeed(const void *text) {
    static const char *const hints[] = {"fp16.loss_scale:0,fp16.hysteresis"};
    sn_options *o;
    SN_TRY(sn_recipe_new(&o));
    sn_status s = sn_options_read_deepspeed_text(o, "config", text, strlen(text), hints, 1);
    sn_options_close(o);
    return s;
}

static void configs(void **state) {
    (void)state;
    fail_each("DeepSpeed", 0, read_deepspeed,
              "{\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"hysteresis\": 2}, \"optimizer\": {\"type\": \"SGD\", \"params\": "
              "{\"lr\": 1e-3}},"
              " \"scheduler\": {\"params\": {\"warmup_max_lr\": 0.001}}, \"zero_optimization\": {\"stage\": 2}}");
}

static sn_status open_model(const void *path) {
    sn_model m;
    SN_TRY(sn_model_open(path, &m));
    sn_model_close(&m);
    return SN_OK;
}

static void models(void **state) {
    (void)state;
    /* without memory for PCRE2's machine code the patterns are interpreted */
    fail_each("llama.gguf", 16, open_model, FILES "model_files/llama.gguf");
    fail_each("gpt2 folder", 0, open_model, FILES "model_files/gpt2");
    fail_each("config.json", 0, open_model, FILES "model_files/llama/config.json");
}

static char data_path[600], out_path[600];

static void write_data(void) {
    static const char text[] = "{\"input_ids\": [1, 3, 4, 5, 6], \"labels\": [-100, 3, 4, 5, 6]}\n{\"input_ids\": [2, 7, "
                               "8]}\n\n{\"input_ids\": [9, 10, 11, 12]}\n";
    assert_ok(sn_file_replace(data_path, text, sizeof text - 1));
}

/* Builds the index anew, reads a row and fills a batch. */
static sn_status open_data(const void *packing) {
    char index[700];
    int32_t ids[16], positions[16], starts[16], labels[16];
    sn_dataset *d = NULL;
    sn_loader *l = NULL;
    sn_step step;
    sn_data_cursor at = {0};
    sn_sample sample = {0};
    snprintf(index, sizeof index, "%s.snug-idx", data_path);
    SN_TRY(sn_remove_tree(index));
    sn_dataset_options o = {.path = data_path, .cutoff_len = 8};
    sn_batch b = {.ids = ids, .positions = positions, .seq_start = starts, .labels = labels};
    sn_status s = sn_dataset_open(&o, &d);
    sn_loader_options lo = {.dataset = d, .micro_rows = 2, .packing = *(const bool *)packing, .shuffle = true, .seed = 1};
    if (s == SN_OK) s = sn_dataset_read(d, 0, &sample);
    if (s == SN_OK) s = sn_loader_open(&lo, &l);
    if (s == SN_OK) s = sn_loader_step(l, &at, &step);
    if (s == SN_OK) s = sn_loader_fill(l, 0, 0, &b);
    sn_sample_free(&sample);
    sn_loader_close(l);
    sn_dataset_close(d);
    return s;
}

static void datasets(void **state) {
    (void)state;
    write_data();
    fail_each("dataset", 0, open_data, &(bool){false});
    fail_each("packed dataset", 0, open_data, &(bool){true});
}

/* Whole training of one step, with a checkpoint and an export. What allocation failed decides what is left undone; whatever
 * it is, it ends with an error. */
static sn_status train(const void *context) {
    sn_model m;
    sn_train_summary summary;
    char index[sizeof data_path + 16];
    snprintf(index, sizeof index, "%s.snug-idx", data_path);
    remove(index); /* made anew each time, or the first run would allocate more than the others */
    SN_TRY(sn_remove_tree(out_path));
    SN_TRY(sn_model_open(FILES "model_files/llama", &m));
    sn_status s = sn_train(&m, context, data_path, out_path, NULL, &summary);
    sn_model_close(&m);
    return s;
}

static void training(void **state) {
    (void)state;
    sn_options *recipe = tiny_recipe("lora=on lora_rank=2 max_steps=1 cutoff_len=8 threads=1 memory=1GiB");
    write_data();
    fail_each("train", 0, train, recipe);
    sn_options_close(recipe);
}

static int start(void **state) {
    (void)state;
    const char *root = test_dir("fail-alloc");
    snprintf(data_path, sizeof data_path, "%s/data.jsonl", root);
    snprintf(out_path, sizeof out_path, "%s/out", root);
    sn_log_set_level(SN_LOG_WARN + 1);
    return 0;
}

static int stop(void **state) {
    (void)state;
    *strrchr(data_path, '/') = 0;
    return sn_remove_tree(data_path) == SN_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes), cmocka_unit_test(jobs),   cmocka_unit_test(stages),   cmocka_unit_test(clusters),
        cmocka_unit_test(configs), cmocka_unit_test(models), cmocka_unit_test(datasets), cmocka_unit_test(training),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
