#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/options.h"

static const sn_option training[] = {
    {.key = "per_device_train_batch_size",
     .aliases = "b,batch-size",
     .default_text = "8",
     .kind = SN_OPTION_INT,
     .has_least = true,
     .least = 1,
     .help = "rows of a micro-batch"},
    {.key = "learning_rate",
     .aliases = "lr",
     .default_text = "5e-5",
     .kind = SN_OPTION_FLOAT,
     .has_least = true,
     .help = "step size at the end of the warm-up"},
    {.key = "bf16", .default_text = "false", .kind = SN_OPTION_FLAG, .help = "compute in bfloat16"},
    {.key = "lr_scheduler_type",
     .default_text = "linear",
     .kind = SN_OPTION_CHOICE,
     .choices = "constant,linear,cosine",
     .help = "how the learning rate falls"},
    {.key = "lora_target", .kind = SN_OPTION_LIST, .default_text = "q_proj,v_proj", .help = "layers that get an adapter"},
    {.key = "seed", .default_text = "42", .kind = SN_OPTION_INT, .help = "of all random numbers"},
    {.key = "adam_beta1",
     .default_text = "0.9",
     .kind = SN_OPTION_FLOAT,
     .has_least = true,
     .has_most = true,
     .most = 1,
     .help = "decay of the first moment"},
};
static const sn_option memory[] = {
    {.key = "memory", .kind = SN_OPTION_BUDGET, .help = "what the run may take"},
    {.key = "bucket", .kind = SN_OPTION_BYTES, .default_text = "16MiB", .help = "of one reduction"},
    {.key = "overlap", .kind = SN_OPTION_SWITCH, .default_text = "on", .help = "copy while computing"},
    {.key = "output_dir",
     .aliases = "o",
     .kind = SN_OPTION_STRING,
     .help = "folder of checkpoints, metrics and the summary, made when it is not there yet, kept when it is"},
    {.key = "secret", .kind = SN_OPTION_STRING, .hidden = true},
};
static const sn_option_group groups_a = {"Training", training, sizeof training / sizeof *training}, groups_b = {"Memory", memory, 5};
static const sn_option_group *const groups[] = {&groups_a, &groups_b};

static sn_options *o;

static int open_store(void **state) {
    (void)state;
    return sn_options_open(groups, 2, &o) != SN_OK;
}
static int close_store(void **state) {
    (void)state;
    sn_options_close(o);
    return 0;
}

static const char *places[40];
static size_t n_places;

/* arguments("--a", "1", NULL) */
static sn_status arguments(const char *first, ...) {
    char *argv[40];
    int argc = 0;
    va_list list;
    va_start(list, first);
    for (const char *a = first; a; a = va_arg(list, const char *)) argv[argc++] = (char *)a;
    va_end(list);
    return sn_options_read_arguments(o, argc, argv, places, &n_places);
}

static void assert_error(sn_status s, const char *want) {
    assert_int_equal(s, SN_ERR_USAGE);
    if (strcmp(sn_error_text(), want)) fail_msg("got:    %s\nwanted: %s", sn_error_text(), want);
}

static sn_status recipe(const char *text) { return sn_options_read_recipe_text(o, "r.yaml", text, strlen(text)); }

static void defaults(void **state) {
    (void)state;
    size_t n;
    assert_int_equal(sn_options_int(o, "per_device_train_batch_size"), 8);
    assert_true(sn_options_float(o, "learning_rate") == 5e-5);
    assert_false(sn_options_bool(o, "bf16"));
    assert_true(sn_options_bool(o, "overlap"));
    assert_string_equal(sn_options_list(o, "lora_target", &n)[1], "v_proj");
    assert_int_equal(n, 2);
    assert_int_equal(sn_options_bytes(o, "bucket"), 16 << 20);
    assert_true(sn_options_budget(o, "memory").bare == UINT64_MAX && sn_options_budget(o, "memory").host == UINT64_MAX);
    assert_null(sn_options_string(o, "output_dir"));
    assert_false(sn_options_has(o, "output_dir") || sn_options_given(o, "seed"));
    assert_true(sn_options_has(o, "seed"));
}

static void spellings_of_arguments(void **state) {
    (void)state;
    size_t n;
    assert_ok(arguments("model.gguf", "--per_device_train_batch_size", "4", "--learning-rate=1e-4", "--bf16", "--lr-scheduler_type=cosine",
                        "-o", "out", "-", "--overlap=off", "--seed", "-3", NULL));
    assert_int_equal(sn_options_int(o, "per_device_train_batch_size"), 4);
    assert_true(sn_options_float(o, "learning_rate") == 1e-4);
    assert_true(sn_options_bool(o, "bf16"));
    assert_false(sn_options_bool(o, "overlap"));
    assert_string_equal(sn_options_string(o, "lr_scheduler_type"), "cosine");
    assert_string_equal(sn_options_string(o, "output_dir"), "out");
    assert_int_equal(sn_options_int(o, "seed"), -3);
    assert_int_equal(n_places, 2);
    assert_string_equal(places[0], "model.gguf");
    assert_string_equal(places[1], "-");
    assert_ok(arguments("--no-bf16", "-b=2", "--lr", "0", "-lr", "0.5", "--batch-size", "3", "--", "--seed", "7", NULL));
    assert_false(sn_options_bool(o, "bf16"));
    assert_int_equal(sn_options_int(o, "per_device_train_batch_size"), 3);
    assert_true(sn_options_float(o, "learning_rate") == 0.5);
    assert_int_equal(sn_options_int(o, "seed"), -3);
    assert_int_equal(n_places, 2);
    assert_ok(arguments("--bf16", "True", "x", "--output-dir=", NULL));
    assert_int_equal(n_places, 1);
    assert_string_equal(sn_options_string(o, "output_dir"), "");
    assert_ok(arguments("--bf16=false", "--lora-target", "k_proj,o_proj,", "--lora-target=up_proj", NULL));
    const char *const *items = sn_options_list(o, "lora_target", &n);
    assert_int_equal(n, 3);
    assert_string_equal(items[0], "k_proj");
    assert_string_equal(items[2], "up_proj");
    assert_ok(arguments("--memory", "8GiB", "--bucket=1.5MB", NULL));
    assert_int_equal(sn_options_budget(o, "memory").bare, UINT64_C(8) << 30);
    assert_int_equal(sn_options_bytes(o, "bucket"), 1500000);
    assert_ok(arguments("--memory=device=24GiB,host=64GB", NULL));
    sn_budget b = sn_options_budget(o, "memory");
    assert_true(b.device == UINT64_C(24) << 30 && b.host == UINT64_C(64000000000) && b.disk == UINT64_MAX && b.bare == UINT64_MAX);
}

static void refused_arguments(void **state) {
    (void)state;
    assert_error(arguments("--lerning-rate", "1", NULL), "unknown option --lerning-rate; did you mean --learning-rate?");
    assert_error(arguments("--batch_szie=1", NULL), "unknown option --batch_szie; did you mean --batch-size?");
    assert_error(arguments("--zzzzzz", NULL), "unknown option --zzzzzz");
    assert_error(arguments("-x", NULL), "unknown option -x");
    assert_error(arguments("--no-seed", NULL), "unknown option --no-seed; did you mean --seed?");
    assert_error(arguments("--no-bf16=1", NULL), "--no-bf16 takes no value");
    assert_error(arguments("--seed", NULL), "--seed needs a value: an integer");
    assert_error(arguments("--seed", "3.5", NULL), "--seed: '3.5' is not an integer");
    assert_error(arguments("--seed=9223372036854775808", NULL), "--seed: '9223372036854775808' is not an integer");
    assert_error(arguments("--seed=", NULL), "--seed: '' is not an integer");
    assert_error(arguments("-b", "0", NULL), "-b: '0' is not an integer of at least 1");
    assert_error(arguments("--lr=-1e-4", NULL), "--lr: '-1e-4' is not a number of at least 0");
    assert_error(arguments("--lr=nan", NULL), "--lr: 'nan' is not a number of at least 0");
    assert_error(arguments("--lr=1e999", NULL), "--lr: '1e999' is not a number of at least 0");
    assert_error(arguments("--adam-beta1", "1.5", NULL), "--adam-beta1: '1.5' is not a number from 0 to 1");
    assert_error(arguments("--lr-scheduler-type", "line", NULL), "--lr-scheduler-type: 'line' is not one of constant,linear,cosine");
    assert_error(arguments("--overlap", "maybe", NULL), "--overlap: 'maybe' is not on or off");
    assert_error(arguments("--bucket", "16 Mb/s", NULL), "--bucket: '16 Mb/s' is not a size such as 8GiB or 500MB");
    const char *bad[] = {"gpu=1GiB", "host=", "host=1GiB,", "host=1GiB,host=2GiB", "8GiB,host=1GiB", ",", "=1", "host=1GiB,disk"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(arguments("--memory", bad[i], NULL), SN_ERR_USAGE);
    assert_int_equal(sn_options_int(o, "seed"), 42); /* a refused value changes nothing */
    assert_true(sn_options_budget(o, "memory").bare == UINT64_MAX);
}

static void precedence(void **state) {
    (void)state;
    setenv("SNUG_LEARNING_RATE", "0.2", 1);
    setenv("SNUG_SEED", "2", 1);
    setenv("SNUG_BF16", "", 1);                        /* counts as unset */
    assert_ok(arguments("--learning-rate=0.3", NULL)); /* the command line first: the order does not matter */
    assert_ok(sn_options_read_environment(o));
    assert_ok(recipe("learning_rate: 0.1\nseed: 1\nbucket: 1KiB\n"));
    assert_true(sn_options_float(o, "learning_rate") == 0.3);
    assert_int_equal(sn_options_int(o, "seed"), 2);
    assert_int_equal(sn_options_bytes(o, "bucket"), 1024);
    assert_int_equal(sn_options_from(o, "learning_rate"), SN_FROM_COMMAND_LINE);
    assert_int_equal(sn_options_from(o, "seed"), SN_FROM_ENVIRONMENT);
    assert_int_equal(sn_options_from(o, "bucket"), SN_FROM_RECIPE);
    assert_true(sn_options_given(o, "bucket") && !sn_options_given(o, "bf16"));
    assert_error(recipe("learning_rate: x\n"),
                 "r.yaml:1:16: learning_rate: 'x' is not a number of at least 0"); /* overruled, yet checked */
    setenv("SNUG_SEED", "two", 1);
    assert_error(sn_options_read_environment(o), "SNUG_SEED: 'two' is not an integer");
    unsetenv("SNUG_SEED");
    unsetenv("SNUG_LEARNING_RATE");
}

static void recipes(void **state) {
    (void)state;
    size_t n;
    assert_ok(recipe("# a comment\nlearning_rate: 1e-3\nbf16: yes\noverlap: off\nlora_target: [q_proj, 'k_proj']\noutput_dir: \"a: "
                     "b\"\nseed: # nothing\n"
                     "memory:\n  device: 24GiB\n  disk: 1TB\n"));
    assert_true(sn_options_float(o, "learning_rate") == 1e-3 && sn_options_bool(o, "bf16") && !sn_options_bool(o, "overlap"));
    assert_string_equal(sn_options_list(o, "lora_target", &n)[1], "k_proj");
    assert_int_equal(n, 2);
    assert_string_equal(sn_options_string(o, "output_dir"), "a: b");
    assert_int_equal(sn_options_int(o, "seed"), 42);
    assert_int_equal(sn_options_budget(o, "memory").disk, UINT64_C(1000000000000));
    const char *empty[] = {"", "# nothing\n", "---\n", "{}", "~\n"};
    for (size_t i = 0; i < 5; i++) assert_ok(recipe(empty[i]));
    assert_ok(recipe("lora_target:\n  - up_proj\noutput_dir: '~'\n"));
    assert_string_equal(sn_options_list(o, "lora_target", &n)[0], "up_proj");
    assert_string_equal(sn_options_string(o, "output_dir"), "~");
}

static void refused_recipes(void **state) {
    (void)state;
    assert_error(recipe("seed: 1\nlearning_rat: 2\n"), "r.yaml:2:1: unknown key 'learning_rat'; did you mean learning_rate?");
    assert_error(recipe("seed: 1\nseed: 2\n"), "r.yaml:2:1: seed is given twice");
    assert_error(recipe("  seed: many\n"), "r.yaml:1:9: seed: 'many' is not an integer");
    assert_error(recipe("seed: [1, 2]\n"), "r.yaml:1:7: seed: wanted an integer");
    assert_error(recipe("lora_target: {a: b}\n"), "r.yaml:1:14: lora_target: wanted texts with commas between them");
    assert_error(recipe("lora_target: [[a]]\n"), "r.yaml:1:15: a list holds texts only");
    assert_error(recipe("lora_target: ['a,b']\n"), "r.yaml:1:15: an item of a list must not contain a comma");
    assert_error(recipe("memory: {gpu: 1GiB}\n"),
                 "r.yaml:1:9: memory: 'gpu=1GiB' is not a size such as 8GiB, or device=24GiB,host=64GiB,disk=500GiB");
    assert_error(recipe("- seed\n"), "r.yaml:1:1: a recipe is a mapping: lines of \"key: value\"");
    assert_error(recipe("seed: 1\n---\nseed: 2\n"), "r.yaml:2:1: a recipe is one document");
    assert_error(recipe("seed: *other\n"), "r.yaml:1:7: seed: wanted an integer");
    assert_error(recipe("? [a]\n: 1\n"), "r.yaml:1:3: wanted a key");
    assert_error(recipe("output_dir: \"a\\0b\"\n"), "r.yaml:1:13: a text with a NUL");
    assert_int_equal(recipe("seed: \"1\n"), SN_ERR_USAGE); /* not YAML */
    assert_non_null(strstr(sn_error_text(), "r.yaml:2:1: "));
    assert_int_equal(recipe("seed: 1\n\tx: 2\n"), SN_ERR_USAGE);
    assert_int_equal(recipe("seed: \xff\n"), SN_ERR_USAGE);
    char *path = sn_path_join(test_dir("options"), "x.yaml");
    assert_int_equal(sn_options_read_recipe(o, path), SN_ERR_FILE);
    assert_ok(sn_file_replace(path, "seed: 11\n", 9));
    assert_ok(sn_options_read_recipe(o, path));
    assert_int_equal(sn_options_int(o, "seed"), 11);
    sn_free(path);
}

static void help_fits(void **state) {
    (void)state;
    for (int width = 40; width <= 100; width += 20) {
        sn_str text = {0};
        sn_options_help(o, NULL, width, &text);
        for (char *line = text.data; *line; line = strchr(line, '\n') + 1) {
            int n = (int)strcspn(line, "\n");
            if (n > width && n > 60) fail_msg("%d columns: %.*s", n, n, line); /* a head alone may be longer */
            assert_true(n == 0 || line[n - 1] != ' ');
        }
        assert_null(strstr(text.data, "secret"));
        sn_str_free(&text);
    }
    sn_str text = {0};
    sn_options_help(o, "Memory", 80, &text);
    assert_string_equal(text.data, "Memory:\n"
                                   "  --memory SIZE               what the run may take\n"
                                   "  --bucket SIZE               of one reduction (default: 16MiB)\n"
                                   "  --overlap on|off            copy while computing (default: on)\n"
                                   "  -o, --output-dir TEXT       folder of checkpoints, metrics and the summary,\n"
                                   "                              made when it is not there yet, kept when it is\n");
    sn_str_clear(&text);
    sn_options_help(o, NULL, 80, &text);
    assert_non_null(strstr(text.data, "\nMemory:\n"));
    assert_non_null(
        strstr(text.data, "  -b, --per-device-train-batch-size N\n                              rows of a micro-batch (default: 8)\n"));
    assert_non_null(
        strstr(text.data, "how the learning rate falls: constant, linear,\n                              cosine (default: linear)\n"));
    sn_str_free(&text);
}

static void dump_reads_back(void **state) {
    (void)state;
    const char *dirs[] = {"out/run_1", "a b", "yes: \"no\" # x", "", "~", "null", "-1", "[x]", "tab\there", "caf\xc3\xa9", "#", "1.5"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        sn_options *other;
        sn_str text = {0}, again = {0};
        assert_ok(
            arguments("--memory", "device=1GiB,disk=2GB", "--lora-target", "a b,*,c", "--seed=7", "--bf16", "--output-dir", dirs[i], NULL));
        sn_options_dump(o, &text);
        assert_ok(sn_options_open(groups, 2, &other));
        assert_ok(sn_options_read_recipe_text(other, "dump", text.data, text.size));
        assert_string_equal(sn_options_string(other, "output_dir"), dirs[i]);
        assert_int_equal(sn_options_int(other, "seed"), 7);
        assert_true(sn_options_bool(other, "bf16"));
        assert_int_equal(sn_options_budget(other, "memory").disk, 2000000000);
        sn_options_close(other);
        sn_str_free(&text);
        sn_str_free(&again);
        close_store(NULL);
        open_store(NULL);
    }
    sn_str text = {0};
    assert_ok(arguments("--seed=7", NULL));
    sn_options_dump(o, &text);
    assert_non_null(strstr(text.data, "# Training\nper_device_train_batch_size: 8  # default\n"));
    assert_non_null(strstr(text.data, "seed: 7  # command line\n"));
    assert_non_null(strstr(text.data, "lora_target: [q_proj, v_proj]  # default\n"));
    assert_non_null(strstr(text.data, "\n# Memory\n# memory: not set\n"));
    sn_str_free(&text);
}

/* Both spellings of an option are one option: on the command line, in recipes and in the environment. */
static void other_spellings(void **state) {
    (void)state;
    static const sn_option options_b[] = {
        {.key = "precision",
         .aliases = "bf16=bf16,fp16=fp16",
         .kind = SN_OPTION_CHOICE,
         .choices = "f32,bf16,fp16",
         .also = "float32=f32,bfloat16=bf16",
         .default_text = "f32"},
        {.key = "recompute", .aliases = "gradient_checkpointing", .kind = SN_OPTION_STRING, .default_text = "none"}};
    static const sn_option_group more = SN_OPTION_GROUP("More", options_b);
    const sn_option_group *all[] = {&more};
    const char *positional[8], *words[] = {"--bf16", "--gradient-checkpointing", "true"}, *off[] = {"--fp16", "False"};
    size_t n;
    sn_options *other;
    assert_ok(sn_options_open(all, 1, &other));
    assert_ok(sn_options_read_arguments(other, 3, (char *const *)(uintptr_t)words, positional, &n));
    assert_string_equal(sn_options_string(other, "precision"), "bf16");
    assert_string_equal(sn_options_string(other, "recompute"), "true");
    assert_ok(sn_options_read_arguments(other, 2, (char *const *)(uintptr_t)off, positional, &n));
    assert_string_equal(sn_options_string(other, "precision"), "bf16");
    sn_options_close(other);
    assert_ok(sn_options_open(all, 1, &other));
    assert_ok(sn_options_read_recipe_text(other, "r", "fp16: true\ngradient_checkpointing: all\n", 38));
    assert_string_equal(sn_options_string(other, "precision"), "fp16");
    assert_string_equal(sn_options_string(other, "recompute"), "all");
    assert_int_equal(sn_options_read_recipe_text(other, "r", "bf16: perhaps\n", 14), SN_ERR_USAGE);
    assert_ok(sn_options_read_recipe_text(other, "r", "precision: float32\n", 19));
    assert_string_equal(sn_options_string(other, "precision"), "f32");
    assert_true(sn_options_is(other, "precision", "float32") && sn_options_is(other, "precision", "f32"));
    assert_int_equal(sn_options_read_recipe_text(other, "r", "precision: float\n", 17), SN_ERR_USAGE);
    assert_int_equal(sn_options_read_recipe_text(other, "r", "precision: float32=f32\n", 23), SN_ERR_USAGE);
    setenv("SNUG_BF16", "1", 1);
    assert_ok(sn_options_read_environment(other));
    unsetenv("SNUG_BF16");
    assert_string_equal(sn_options_string(other, "precision"), "bf16");
    sn_options_close(other);
}

static void clashing_tables(void **state) {
    (void)state;
    static const sn_option same_key = {.key = "seed", .kind = SN_OPTION_INT},
                           same_alias = {.key = "x", .aliases = "y,lr", .kind = SN_OPTION_INT},
                           bad_default = {.key = "x", .default_text = "one", .kind = SN_OPTION_INT},
                           fine = {.key = "x", .kind = SN_OPTION_INT};
    const sn_option *cases[] = {&same_key, &same_alias, &bad_default};
    sn_options *other;
    for (int i = 0; i < 3; i++) {
        sn_option_group g = {"More", cases[i], 1};
        const sn_option_group *all[] = {&groups_a, &g};
        assert_int_equal(sn_options_open(all, 2, &other), SN_ERR_INTERNAL);
        assert_null(other);
    }
    sn_option_group g = {"More", &fine, 1};
    const sn_option_group *all[] = {&groups_a, &g};
    assert_ok(sn_options_open(all, 2, &other));
    assert_false(sn_options_has(other, "x"));
    sn_options_close(other);
}

/* Every allocation fails in turn: an error each time, no leak (seen by the address sanitizer), nothing half set. */
static void allocations_fail(void **state) {
    (void)state;
    for (long n = 0;; n++) {
        sn_options *other;
        sn_alloc_fail_at(n);
        sn_status s = sn_options_open(groups, 2, &other);
        if (s == SN_OK) {
            const char text[] = "lora_target: [a, b]\nmemory: {host: 1GiB}\n";
            s = sn_options_read_recipe_text(other, "r", text, sizeof text - 1);
            sn_options_close(other);
        }
        sn_alloc_fail_at(-1);
        if (s == SN_OK) break;
        assert_int_equal(s, SN_ERR_NO_MEMORY);
        assert_true(n < 1000);
    }
}

static void near_words(void **state) {
    (void)state;
    const char *words[] = {"seed", "speed", "learning_rate", "max_steps"};
    assert_string_equal(sn_nearest_word("sede", words, 4), "seed");
    assert_string_equal(sn_nearest_word("sped", words, 4), "seed");
    assert_string_equal(sn_nearest_word("learnig_rate", words, 4), "learning_rate");
    assert_null(sn_nearest_word("warmup", words, 4));
    assert_null(sn_nearest_word("", words, 4));
    char longest[100];
    memset(longest, 'a', 99);
    longest[99] = 0;
    assert_null(sn_nearest_word(longest, words, 4));
}

#define WITH_STORE(f) cmocka_unit_test_setup_teardown(f, open_store, close_store)
static void values_are_compared_as_what_they_stand_for(void **state) {
    (void)state;
    static const sn_option table[] = {{.key = "flag", .kind = SN_OPTION_FLAG},
                                      {.key = "rate", .kind = SN_OPTION_FLOAT, .default_text = "1e-3"},
                                      {.key = "size", .kind = SN_OPTION_BYTES, .default_text = "1KiB"},
                                      {.key = "form", .kind = SN_OPTION_CHOICE, .choices = "f32,bf16", .default_text = "f32"},
                                      {.key = "mode", .kind = SN_OPTION_STRING, .default_text = "every:2"}};
    static const sn_option_group group = SN_OPTION_GROUP("G", table), *tables[] = {&group};
    sn_options *options;
    assert_ok(sn_options_open(tables, 1, &options));
    assert_false(sn_options_is(options, "flag", "true")); /* not set */
    assert_ok(sn_options_set(options, "flag", "on", SN_FROM_RECIPE, "test"));
    assert_true(sn_options_is(options, "flag", "true"));
    assert_false(sn_options_is(options, "flag", "off"));
    assert_true(sn_options_is(options, "rate", "0.001"));
    assert_false(sn_options_is(options, "rate", "0.002"));
    assert_true(sn_options_is(options, "size", "1024"));
    assert_false(sn_options_is(options, "size", "1025"));
    assert_true(sn_options_is(options, "form", "f32"));
    assert_false(sn_options_is(options, "form", "bf16"));
    assert_false(sn_options_is(options, "form", "f64")); /* no value of it */
    assert_true(sn_options_is(options, "mode", "every:2"));
    assert_false(sn_options_is(options, "mode", "every:"));
    sn_options_close(options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_compared_as_what_they_stand_for),
        WITH_STORE(defaults),
        WITH_STORE(spellings_of_arguments),
        WITH_STORE(refused_arguments),
        WITH_STORE(precedence),
        WITH_STORE(recipes),
        WITH_STORE(refused_recipes),
        WITH_STORE(help_fits),
        WITH_STORE(dump_reads_back),
        cmocka_unit_test(other_spellings),
        cmocka_unit_test(clashing_tables),
        cmocka_unit_test(near_words),
        cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
