/* DeepSpeed's JSON config as a recipe: files as people have them, what they become, and what is refused by name. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/train.h"
#include "io/options_store.h"
#include "support/tiny.h"

static sn_str said; /* what was logged */

static void hear(void *context, sn_log_level level, const char *text) {
    (void)context, (void)level;
    sn_str_printf(&said, "%s\n", text);
}

static sn_status read_config(sn_options *o, const char *text) {
    char path[] = "/tmp/snug_deepspeed_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    sn_str_clear(&said);
    sn_log_to(hear, NULL);
    sn_status s = sn_recipe_read_deepspeed(o, path);
    sn_log_to(NULL, NULL);
    unlink(path);
    return s;
}

/* As trainers ship them for ZeRO-3. */
static const char stage3[] =
    "{\n"
    "  \"bf16\": {\"enabled\": true},\n"
    "  \"fp16\": {\"enabled\": false, \"loss_scale\": 0, \"loss_scale_window\": 1000, \"initial_scale_power\": 16, \"hysteresis\": 2,\n"
    "           \"min_loss_scale\": 1},\n"
    "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-5, \"betas\": [0.8, 0.95], \"eps\": 1e-6, \"weight_decay\": 3e-7}},\n"
    "  \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": 0.0, \"warmup_max_lr\": 0.00003, \"warmup_num_steps\": "
    "50,\n"
    "                \"total_num_steps\": 400}},\n"
    "  \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, \"contiguous_gradients\": true, \"sub_group_size\": 1e9,\n"
    "     \"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": 5e7, \"offload_optimizer\": {\"device\": \"none\"},\n"
    "     \"stage3_gather_16bit_weights_on_model_save\": true},\n"
    "  \"gradient_accumulation_steps\": 4, \"gradient_clipping\": 0.5, \"steps_per_print\": 20, \"train_micro_batch_size_per_gpu\": 2,\n"
    "  \"train_batch_size\": 64, \"wall_clock_breakdown\": false\n"
    "}\n";

static void a_whole_file(void **state) {
    (void)state;
    sn_options *o;
    assert_ok(sn_recipe_new(&o));
    assert_ok(read_config(o, stage3));
    assert_string_equal(sn_options_string(o, "precision"), "bf16");
    assert_string_equal(sn_options_string(o, "optimizer"), "adamw");
    assert_string_equal(sn_options_string(o, "lr_scheduler_type"), "linear");
    assert_int_equal(sn_options_int(o, "zero_stage"), 3);
    assert_int_equal(sn_options_int(o, "gradient_accumulation_steps"), 4);
    assert_int_equal(sn_options_int(o, "per_device_train_batch_size"), 2);
    assert_int_equal(sn_options_int(o, "warmup_steps"), 50);
    assert_int_equal(sn_options_int(o, "max_steps"), 400);
    assert_int_equal(sn_options_int(o, "logging_steps"), 20);
    assert_true(sn_options_float(o, "learning_rate") == 3e-5 && sn_options_float(o, "adam_beta1") == 0.8 &&
                sn_options_float(o, "adam_beta2") == 0.95);
    assert_true(sn_options_float(o, "adam_epsilon") == 1e-6 && sn_options_float(o, "weight_decay") == 3e-7 &&
                sn_options_float(o, "max_grad_norm") == 0.5);
    assert_int_equal(sn_options_from(o, "zero_stage"), SN_FROM_DEEPSPEED);
    assert_string_equal(sn_provenance_name(sn_options_from(o, "zero_stage")), "DeepSpeed config");
    assert_int_equal(sn_options_from(o, "cutoff_len"), SN_FROM_DEFAULT);
    assert_non_null(strstr(said.data, "zero_optimization.overlap_comm"));
    assert_non_null(strstr(said.data, "fp16.hysteresis"));
    assert_null(strstr(said.data, "reduce_bucket_size")); /* auto says nothing */
    assert_non_null(strstr(said.data, "logarithmic"));
    sn_options_close(o);
}

/* What a recipe or the command line says stands, in whatever order they are read. */
static void rank(void **state) {
    (void)state;
    static const char recipe[] = "zero_stage: 1\nprecision: f32\n";
    for (int first = 0; first < 2; first++) {
        sn_options *o;
        assert_ok(sn_recipe_new(&o));
        if (first) assert_ok(read_config(o, stage3));
        assert_ok(sn_options_read_recipe_text(o, "recipe", recipe, sizeof recipe - 1));
        assert_ok(sn_options_set(o, "max_grad_norm", "2", SN_FROM_COMMAND_LINE, "test"));
        if (!first) assert_ok(read_config(o, stage3));
        assert_int_equal(sn_options_int(o, "zero_stage"), 1);
        assert_string_equal(sn_options_string(o, "precision"), "f32");
        assert_true(sn_options_float(o, "max_grad_norm") == 2 && sn_options_float(o, "adam_beta1") == 0.8);
        sn_options_close(o);
    }
}

/* As ZeRO-Infinity's page shows it. */
static void tiers(void **state) {
    (void)state;
    sn_options *o;
    assert_ok(sn_recipe_new(&o));
    assert_ok(read_config(
        o, "{\"zero_optimization\": {\"stage\": 3,"
           " \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/local_nvme\", \"ratio\": 0.3, \"pin_memory\": true,"
           " \"buffer_count\": 4, \"fast_init\": false},"
           " \"offload_param\": {\"device\": \"cpu\", \"nvme_path\": \"/local_nvme\", \"buffer_count\": 5, \"buffer_size\": 1e8}},"
           " \"aio\": {\"block_size\": 1048576, \"queue_depth\": 8, \"thread_count\": 1, \"single_submit\": false, \"overlap_events\": "
           "true}}"));
    assert_string_equal(sn_options_string(o, "offload_optimizer"), "disk");
    assert_string_equal(sn_options_string(o, "offload_param"), "host");
    assert_string_equal(sn_options_string(o, "offload_dir"), "/local_nvme");
    assert_true(sn_options_float(o, "offload_ratio") == 0.3);
    assert_non_null(strstr(said.data, "aio.queue_depth"));
    assert_ok(read_config(o, "{\"zero_optimization\": {\"offload_param\": {\"device\": \"none\"}}}"));
    assert_string_equal(sn_options_string(o, "offload_param"), "none");
    sn_options_close(o);
}

static void auto_keeps_the_default(void **state) {
    (void)state;
    sn_options *o;
    assert_ok(sn_recipe_new(&o));
    assert_ok(read_config(
        o, "{\"zero_optimization\": {\"stage\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": null},"
           " \"optimizer\": {\"type\": \"auto\", \"params\": {\"betas\": \"auto\", \"lr\": \"auto\"}}, \"train_batch_size\": \"auto\","
           " \"gradient_clipping\": \"auto\", \"scheduler\": {\"type\": \"auto\", \"params\": \"auto\"}}"));
    for (size_t i = 0; i < o->count; i++) assert_true(!o->slots[i].value.set || o->slots[i].value.from == SN_FROM_DEFAULT);
    assert_int_equal(said.size, 0);
    assert_ok(read_config(o, "{}"));
    assert_ok(read_config(o, "{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": false}, \"optimizer\": {\"type\": \"sgd\", "
                             "\"params\": {\"momentum\": 0.9}},"
                             " \"data_types\": {\"grad_accum_dtype\": \"fp32\"}}"));
    assert_string_equal(sn_options_string(o, "precision"), "fp16");
    assert_string_equal(sn_options_string(o, "optimizer"), "sgd");
    assert_string_equal(sn_options_string(o, "gradient_dtype"), "f32");
    assert_true(sn_options_float(o, "momentum") == 0.9);
    sn_options_close(o);
}

static const struct wrong {
    const char *text, *words[2];
    sn_status status;
} wrongs[] = {
    {"{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"tpu\", \"pin_memory\": true}}}",
     {":1:68: zero_optimization.offload_optimizer.device", "'tpu'"},
     SN_ERR_USAGE},
    {"{\"zero_optimization\": {\"offload_param\": {\"ratio\": 0.5}}}", {"zero_optimization.offload_param.ratio", "nothing"}, SN_ERR_USAGE},
    {"{\"zero_optimization\": {\"offload_param\": {\"nvme_path\": \"/a\"}, \"offload_optimizer\": {\"nvme_path\": \"/b\"}}}",
     {"offload_dir is /b here and /a before", ""},
     SN_ERR_USAGE},
    {"{\"aio\": {\"blocks\": 1048576}}", {"aio.blocks", "nothing"}, SN_ERR_USAGE},
    {"{\n  \"zero_optimisation\": {}\n}", {":2:3: zero_optimisation", "nothing"}, SN_ERR_USAGE},
    {"{\"train_micro_batch_size_per_gpu\": \"two\"}", {"train_micro_batch_size_per_gpu", "two"}, SN_ERR_USAGE},
    {"{\"train_micro_batch_size_per_gpu\": 1.5}", {"train_micro_batch_size_per_gpu", "1.5"}, SN_ERR_USAGE},
    {"{\"zero_optimization\": 3}", {"zero_optimization", "wanted an object"}, SN_ERR_USAGE},
    {"{\"gradient_clipping\": {\"norm\": 1}}", {"gradient_clipping", "wanted one value"}, SN_ERR_USAGE},
    {"{\"gradient_clipping\": [1]}", {"gradient_clipping", "wanted one value"}, SN_ERR_USAGE},
    {"{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}",
     {"fp16.enabled", "precision is fp16 here and bf16 before"},
     SN_ERR_USAGE},
    {"{\"bf16\": {\"enabled\": 1}}", {"bf16.enabled", "neither true nor false"}, SN_ERR_USAGE},
    {"{\"bf16\": {\"enabled\": \"yes\"}}", {"bf16.enabled", "neither true nor false"}, SN_ERR_USAGE},
    {"{\"optimizer\": {\"type\": \"LAMB\"}}", {"optimizer.type", "'LAMB' (known: AdamW, Adam, Lion, SGD)"}, SN_ERR_USAGE},
    {"{\"optimizer\": {\"params\": {\"betas\": [0.9, 0.99, 0.999]}}}", {"optimizer.params.betas.2", "nothing"}, SN_ERR_USAGE},
    {"{\"optimizer\": {\"params\": {\"lr\": 1e-3}}, \"scheduler\": {\"params\": {\"warmup_max_lr\": 1e-4}}}",
     {"learning_rate is 1e-4 here and 1e-3 before", ""},
     SN_ERR_USAGE},
    {"{\"scheduler\": {\"type\": \"OneCycle\"}}", {"scheduler.type", "OneCycle"}, SN_ERR_USAGE},
    {"{\"scheduler\": {\"params\": {\"warmup_min_lr\": 1e-8}}}", {"scheduler.params.warmup_min_lr", "1e-8"}, SN_ERR_USAGE},
    {"{\"fp16\": {\"loss_scale\": 128}}", {"fp16.loss_scale", "'128'"}, SN_ERR_USAGE},
    {"{\"zero_optimization\": {\"stage\": 1, \"stage\": 2}}", {"zero_optimization.stage", "2 here and 1 before"}, SN_ERR_USAGE},
    {"{\"a.b\": 1}", {"a.b", "nothing"}, SN_ERR_USAGE},
    {"{\"zero_optimization.stage\": 1}", {"zero_optimization.stage", "nothing"}, SN_ERR_USAGE},
    {"{\"\": 1}", {"nothing", ""}, SN_ERR_USAGE},
    {"{\"seed\": \"1\\u00002\"}", {"seed", "NUL"}, SN_ERR_USAGE},
    {"[1]", {"wanted object", ""}, SN_ERR_FORMAT},
    {"", {"", ""}, SN_ERR_FORMAT},
    {"{\"seed\": 1", {"", ""}, SN_ERR_FORMAT},
    {"{\"seed\": 1} 2", {"", ""}, SN_ERR_FORMAT},
    {"{\"seed\": }", {"", ""}, SN_ERR_FORMAT},
};

static void faults_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        sn_options *o;
        assert_ok(sn_recipe_new(&o));
        sn_status s = read_config(o, wrongs[i].text);
        if (s != wrongs[i].status) fail_msg("%s: status %d, wanted %d: %s", wrongs[i].text, s, wrongs[i].status, sn_error_text());
        if (!strstr(sn_error_text(), "snug_deepspeed_")) fail_msg("%s: '%s' does not name the file", wrongs[i].text, sn_error_text());
        for (int k = 0; k < 2; k++)
            if (!strstr(sn_error_text(), wrongs[i].words[k]))
                fail_msg("%s: '%s' lacks '%s'", wrongs[i].text, sn_error_text(), wrongs[i].words[k]);
        sn_options_close(o);
    }
    sn_options *o;
    assert_ok(sn_recipe_new(&o));
    assert_int_equal(sn_recipe_read_deepspeed(o, "/nonexistent/ds.json"), SN_ERR_FILE);
    char *long_name = malloc(4096);
    assert_non_null(long_name);
    memset(long_name, 'x', 4095);
    memcpy(long_name, "{\"", 2);
    memcpy(long_name + 4086, "\": 1}", 6);
    assert_int_equal(read_config(o, long_name), SN_ERR_USAGE);
    free(long_name);
    sn_options_close(o);
}

/* The step's rows, which DeepSpeed says too, must be what the other keys make. */
static void whole_batch(void **state) {
    (void)state;
    sn_model m;
    sn_session s;
    sn_options *o;
    assert_ok(sn_model_open("gpt2", &m));
    assert_ok(sn_recipe_new(&o));
    assert_ok(read_config(o, stage3));
    assert_ok(sn_options_set(o, "ranks", "8", SN_FROM_COMMAND_LINE, "test"));
    assert_ok(sn_train_plan(&m, o, NULL, NULL, &s));
    assert_int_equal(s.plan->ranks, 8);
    sn_session_close(&s);
    assert_ok(sn_options_set(o, "ranks", "4", SN_FROM_COMMAND_LINE, "test"));
    assert_int_equal(sn_train_plan(&m, o, NULL, NULL, &s), SN_ERR_USAGE);
    assert_non_null(strstr(sn_error_text(), "train_batch_size is 64"));
    sn_options_close(o);
    sn_model_close(&m);
}

/* Every path of the tables is said by one option alone, apart from switches and words. */
static void tables(void **state) {
    (void)state;
    sn_options *o;
    assert_ok(sn_recipe_new(&o));
    for (size_t i = 0; i < o->count; i++)
        for (size_t k = 0; k < o->count; k++) {
            const char *a = o->slots[i].option->deepspeed, *b = o->slots[k].option->deepspeed;
            if (i != k && a && b && !strcmp(a, b)) fail_msg("%s and %s both read %s", o->slots[i].option->key, o->slots[k].option->key, a);
        }
    sn_options_close(o);
    sn_str_free(&said);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_file),
                                       cmocka_unit_test(rank),
                                       cmocka_unit_test(tiers),
                                       cmocka_unit_test(auto_keeps_the_default),
                                       cmocka_unit_test(faults_are_named),
                                       cmocka_unit_test(whole_batch),
                                       cmocka_unit_test(tables)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
