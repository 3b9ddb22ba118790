/* Products of parallelism: whatever of tensor, pipeline, context and data parallelism is combined, losses, gradient norms, weights and
 * moments are those of one rank, to f32's rounding; of full training, adapters, adapters on quantised weights; with shards of ZeRO,
 * accumulation, recomputation, other tiers. What one pair does alone stands in the tests of each. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "support/training.h"
#include "support/world.h"

enum { LENGTH = 8, ROWS = 8, STOP = 3, STEPS = 6 };

static int32_t label_of(int64_t at, int step, int64_t vocabulary) { return at % 5 == 1 ? -100 : (int32_t)((at * 29 + step) % vocabulary); }

static const world_rows rows = {.rows = ROWS, .length = LENGTH, .steps = 3, .evaluate = true, .label = label_of};

/* 3 key/value heads with 2 queries each, an odd vocabulary; feed-forward rows of 5 blocks of a quantised form. */
static sn_model_config llama(int layers, bool tied) {
    sn_model_config c = tiny_llama();
    c.vocab_size = 97;
    c.num_layers = layers;
    c.hidden_size = 64;
    c.num_heads = 6;
    c.num_kv_heads = 3;
    c.head_dim = 16;
    c.intermediate_size = 160;
    c.tie_word_embeddings = tied;
    return c;
}

static void train(const sn_model_config *model, const char *device, int ranks, const char *options, world_outcome *out) {
    world w;
    world_open(&w, &rows, model, device, ranks, options);
    world_train(&w, 1e-3, options, out);
    world_keep(&w, out);
    world_close(&w);
}

/* Adam divides by the root of a moment: with its usual epsilon a gradient that is all rounding moves a weight as much as any other. */
#define STEADY "threads=1 adam_epsilon=1e-5 "
#define LORA "lora=on lora_rank=4 lora_dropout=0.1 "
#define QLORA "qlora=on lora_rank=4 "
#define TWICE "gradient_accumulation_steps=2 "
#define FOUR "gradient_accumulation_steps=4 "
#define ON_DISK "offload_optimizer=disk offload_param=disk offload_dir=products_test_disk "

typedef struct product {
    int ranks;
    const char *both, *spread; /* options of both, and of the ranks alone */
} product;

/* One product against one rank. */
static void compare(const sn_model_config *config, const char *device, const product *p, double tolerance) {
    world_outcome one = {0}, several = {0};
    char options[512];
    snprintf(options, sizeof options, STEADY "recompute=none %s", p->both);
    train(config, "cpu", 1, options, &one);
    snprintf(options, sizeof options, STEADY "%s %s", p->both, p->spread);
    train(config, device, p->ranks, options, &several);
    world_compare(&several, &one, tolerance, options);
    world_forget(&one);
    world_forget(&several);
}

static void check(const product *cases, size_t n, bool tied, const char *device) {
    for (size_t i = 0; i < n; i++) {
        const char *spread = cases[i].spread;
        const bool deep = strstr(spread, "virtual") || strstr(spread, "pp=3") || strstr(spread, "pp=4");
        const sn_model_config config = llama(deep ? 4 : 2, tied != (i % 2 == 1));
        compare(&config, device, &cases[i], 1e-5);
    }
}
#define CHECK_ON(device, cases, tied) check(cases, sizeof(cases) / sizeof *(cases), tied, device)
#define CHECK(cases, tied) CHECK_ON("cpu", cases, tied)

static void tensor_and_pipeline(void **state) {
    (void)state;
    static const product cases[] = {{4, TWICE, "tp=2 pp=2"},
                                    {6, TWICE, "tp=3 pp=2 sequence_parallel=on recompute=light"},
                                    {4, FOUR, "tp=2 pp=2 virtual_pipeline_size=2 recompute=all"},
                                    {4, LORA FOUR, "tp=2 pp=2 pipeline_schedule=gpipe sequence_parallel=on recompute=selective"},
                                    {8, QLORA FOUR, "tp=2 pp=4 recompute=attention"}};
    CHECK(cases, true);
}

static void tensor_and_context(void **state) {
    (void)state;
    static const product cases[] = {{4, "", "tp=2 cp=2"},
                                    {6, TWICE, "tp=3 cp=2 sequence_parallel=on recompute=all"},
                                    {8, LORA, "tp=2 cp=4 recompute=light"},
                                    {6, LORA TWICE, "tp=3 cp=2 sequence_parallel=on"}, /* 16 tokens over 3 ranks */
                                    {4, QLORA TWICE, "tp=2 cp=2 sequence_parallel=on recompute=every:2"}};
    CHECK(cases, false);
}

static void pipeline_and_context(void **state) {
    (void)state;
    static const product cases[] = {{4, TWICE, "pp=2 cp=2"},
                                    {4, FOUR, "pp=2 cp=2 virtual_pipeline_size=2 recompute=attention"},
                                    {8, LORA FOUR, "pp=4 cp=2 recompute=all"},
                                    {6, QLORA, "pp=3 cp=2 recompute=light"}};
    CHECK(cases, true);
}

static void tensor_pipeline_data(void **state) {
    (void)state;
    static const product cases[] = {{8, TWICE, "tp=2 pp=2 zero_stage=0 recompute=light"},
                                    {8, TWICE, "tp=2 pp=2 zero_stage=1 sequence_parallel=on"},
                                    {8, FOUR, "tp=2 pp=2 zero_stage=2 virtual_pipeline_size=2 recompute=all"},
                                    {8, FOUR, "tp=2 pp=2 zero_stage=3 recompute=attention"},
                                    {8, LORA TWICE, "tp=2 pp=2 zero_stage=3 sequence_parallel=on recompute=all"},
                                    {8, QLORA TWICE, "tp=2 pp=2 zero_stage=2 gradient_sync=step"}};
    CHECK(cases, false);
}

static void tensor_context_data(void **state) {
    (void)state;
    static const product cases[] = {{8, "", "tp=2 cp=2 zero_stage=0 sequence_parallel=on"},
                                    {8, "", "tp=2 cp=2 zero_stage=1 recompute=light"},
                                    {8, TWICE, "tp=2 cp=2 zero_stage=2 gradient_sync=step"},
                                    {8, TWICE, "tp=2 cp=2 zero_stage=3 sequence_parallel=on recompute=all"},
                                    {8, LORA, "tp=2 cp=2 zero_stage=3"},
                                    {8, QLORA TWICE, "tp=2 cp=2 zero_stage=1 sequence_parallel=on recompute=selective"}};
    CHECK(cases, true);
}

static void pipeline_context_data(void **state) {
    (void)state;
    static const product cases[] = {{8, TWICE, "pp=2 cp=2 zero_stage=0 recompute=all"},
                                    {8, FOUR, "pp=2 cp=2 zero_stage=1 virtual_pipeline_size=2"},
                                    {8, TWICE, "pp=2 cp=2 zero_stage=2 pipeline_schedule=gpipe"},
                                    {8, FOUR, "pp=2 cp=2 zero_stage=3 recompute=light"},
                                    {8, LORA TWICE, "pp=2 cp=2 zero_stage=2 recompute=selective"},
                                    {8, QLORA TWICE, "pp=2 cp=2 zero_stage=3"}};
    CHECK(cases, false);
}

static void tensor_pipeline_context(void **state) {
    (void)state;
    static const product cases[] = {{8, TWICE, "tp=2 pp=2 cp=2"},
                                    {8, FOUR, "tp=2 pp=2 cp=2 sequence_parallel=on virtual_pipeline_size=2 recompute=all"},
                                    {12, TWICE, "tp=3 pp=2 cp=2 recompute=light"},
                                    {8, LORA TWICE, "tp=2 pp=2 cp=2 sequence_parallel=on recompute=attention"},
                                    {8, QLORA FOUR, "tp=2 pp=2 cp=2 recompute=all"}};
    CHECK(cases, true);
}

static void all_of_them(void **state) {
    (void)state;
    static const product cases[] = {{16, TWICE, "tp=2 pp=2 cp=2 zero_stage=0 recompute=light"},
                                    {16, FOUR, "tp=2 pp=2 cp=2 zero_stage=1 virtual_pipeline_size=2 sequence_parallel=on"},
                                    {16, TWICE, "tp=2 pp=2 cp=2 zero_stage=2 recompute=all"},
                                    {16, TWICE, "tp=2 pp=2 cp=2 zero_stage=3 sequence_parallel=on recompute=attention"},
                                    {16, LORA TWICE, "tp=2 pp=2 cp=2 zero_stage=3"},
                                    {16, QLORA TWICE, "tp=2 pp=2 cp=2 zero_stage=1 sequence_parallel=on recompute=all"}};
    CHECK(cases, false);
}

static void on_disk(void **state) {
    (void)state;
    static const product cases[] = {{4, "", ON_DISK "tp=2 zero_stage=1"},
                                    {4, TWICE, ON_DISK "tp=2 zero_stage=3 offload_gradients=disk sequence_parallel=on recompute=all"},
                                    {4, TWICE, ON_DISK "pp=2 zero_stage=2"},
                                    {4, FOUR, ON_DISK "pp=2 zero_stage=3 virtual_pipeline_size=2 recompute=light"},
                                    {8, LORA TWICE, ON_DISK "tp=2 pp=2 zero_stage=1"},
                                    {8, QLORA TWICE, ON_DISK "tp=2 pp=2 zero_stage=3"},
                                    {8, TWICE, ON_DISK "tp=2 pp=2 zero_stage=2"}};
    CHECK(cases, true);
}

/* Activations away between forward and backward: what is summed, sent or cut among ranks. */
static void activations_elsewhere(void **state) {
    (void)state;
    static const product hosts[] = {
        {2, TWICE, "offload_activations=host zero_stage=2"},
        {4, "", "offload_activations=host tp=2 cp=2 sequence_parallel=on"},
        {8, TWICE, "offload_activations=host offload_optimizer=host offload_gradients=host tp=2 pp=2 zero_stage=3"}};
    CHECK_ON("cpu-split", hosts, true);
    static const product sent[] = {
        {4, LORA TWICE, "offload_activations=host tp=2 zero_stage=1 sequence_parallel=on"}, /* columns of one, rows of the other */
        {4, TWICE, "tp=2 pp=2 sequence_parallel=on"}};                                      /* inputs are brought to a stage */
    sn_model_config config = tiny_gpt2();
    for (int i = 0; i < 2; i++) compare(&config, "cpu-split", &sent[i], 1e-5);
#define AWAY "offload_activations=disk offload_dir=products_test_disk "
    static const product disks[] = {
        {2, TWICE, AWAY "cp=2"},
        {4, LORA TWICE, AWAY "tp=2 pp=2 recompute=light"},
        {8, FOUR, "offload_activations=disk:0.5 offload_dir=products_test_disk tp=2 pp=2 cp=2 virtual_pipeline_size=2"}};
    CHECK(disks, false);
}

/* Blocks in turns, weights gathered in 8 bits, codes of 8 bits. */
static void in_turns_and_in_8_bits(void **state) {
    (void)state;
#define TURNS "layerwise=on layerwise_steps=2 "
    static const product turns[] = {
        {4, TURNS, "tp=2 cp=2"}, {4, TURNS TWICE, "tp=2 zero_stage=2 sequence_parallel=on"}, {4, TURNS, "cp=2 zero_stage=3"}};
    CHECK(turns, true);
    sn_model_config config = llama(2, true);
    static const product gathered[] = {{4, TWICE, "pp=2 zero_stage=3 zero_gather_dtype=int8"},
                                       {8, TWICE, "tp=2 cp=2 zero_stage=3 zero_gather_dtype=int8"}};
    for (int i = 0; i < 2; i++) compare(&config, "cpu", &gathered[i], 1e-2);
    config.vocab_size = 104;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 128;
    config.intermediate_size = 512;
    static const product codes[] = {{8, TWICE "optimizer=adamw_8bit", "tp=2 pp=2 cp=2"},
                                    {8, TWICE "optimizer=adamw_8bit", ON_DISK "tp=2 pp=2 zero_stage=2"}};
    for (int i = 0; i < 2; i++) compare(&config, "cpu", &codes[i], 1e-3);
}

/* Updates inside backward, whoever has which part of a gradient. */
static void released(void **state) {
    (void)state;
    static const product cases[] = {{8, "max_grad_norm=0", "gradient_release=on tp=2 cp=2 zero_stage=3 sequence_parallel=on"},
                                    {8, "max_grad_norm=0", "gradient_release=on tp=2 pp=2 zero_stage=2 recompute=light"},
                                    {4, LORA "max_grad_norm=0", "gradient_release=on pp=2 cp=2"}};
    CHECK(cases, true);
}

/* Rules that need whole matrices have them where tensors are not cut; codes of 8 bits go where their blocks are. */
static void other_rules(void **state) {
    (void)state;
    static const product cases[] = {{8, TWICE "optimizer=muon muon_momentum=0.9", "pp=2 cp=2 zero_stage=2"},
                                    {8, TWICE "optimizer=adafactor", "pp=2 cp=2 zero_stage=3"},
                                    {8, TWICE "optimizer=sgd momentum=0.9", "tp=2 cp=2 zero_stage=2 sequence_parallel=on"}};
    CHECK(cases, false);
}

/* ---- Whatever chance brings together ---- */

/* One of n, by counter. */
static int one_of(uint32_t *at, int n) { return (int)(sn_philox(11, 0, 0, (*at)++, 0, 0).v[0] % (uint32_t)n); }

static void add(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char *text, const char *format, ...) {
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, 400 - n, format, args);
    va_end(args);
}

/* Draws axes, training, recomputation, ZeRO, homes. *device: where ranks run. */
static sn_model_config draw(uint32_t *at, product *p, char both[400], char spread[400], const char **device) {
    static const char *const trainings[] = {"", "", LORA, QLORA, "layerwise=on layerwise_steps=4 "};
    static const char *const kept[] = {"light", "selective", "attention", "every:1", "all"}, *const homes[] = {"optimizer", "gradients",
                                                                                                               "param", "activations"};
    int tp, pp, cp, dp;
    const bool gpt2 = !one_of(at, 4), turns = !one_of(at, 6);
    do {
        tp = 1 + one_of(at, gpt2 ? 2 : 3);
        pp = turns ? 1 : 1 << one_of(at, 3);
        cp = 1 + one_of(at, 2);
        dp = 1 + one_of(at, 2);
        p->ranks = tp * pp * cp * dp;
    } while (p->ranks < 2 || p->ranks > WORLD_MOST);
    const int micro = 1 << one_of(at, 3), training = turns ? 4 : one_of(at, gpt2 ? 3 : 4); /* GPT-2's rows are no whole blocks */
    const bool turned = pp == 2 && micro > 1 && one_of(at, 2), released = micro == 1 && !one_of(at, 3);
    *both = *spread = 0;
    add(both, "%sgradient_accumulation_steps=%d ", trainings[training], micro);
    if (!one_of(at, 3)) add(both, "weight_decay=0.1 ");
    if (released) add(both, "max_grad_norm=0 ");
    add(spread, "tp=%d pp=%d cp=%d zero_stage=%d recompute=%s ", tp, pp, cp, one_of(at, 4), one_of(at, 2) ? "none" : kept[one_of(at, 5)]);
    if (tp > 1 && one_of(at, 2)) add(spread, "sequence_parallel=on ");
    if (pp > 1 && !one_of(at, 4)) add(spread, "pipeline_schedule=gpipe ");
    else if (turned) add(spread, "virtual_pipeline_size=2 ");
    if (micro > 1 && dp > 1 && !one_of(at, 3)) add(spread, "gradient_sync=step ");
    if (released) add(spread, "gradient_release=on ");
    *device = one_of(at, 4) ? "cpu" : "cpu-split";
    const int away = one_of(at, 2) ? 0 : one_of(at, 16);
    for (int i = 0; i < 4; i++)
        if (away >> i & 1) add(spread, "offload_%s=%s%s ", homes[i], strcmp(*device, "cpu") ? "host" : "disk", one_of(at, 2) ? "" : ":0.5");
    if (away) add(spread, "offload_dir=products_test_disk ");
    sn_model_config config = gpt2 ? tiny_gpt2() : llama(2, one_of(at, 2));
    config.num_layers = pp > 2 || turned ? 4 : 2;
    p->both = both;
    p->spread = spread;
    return config;
}

static void at_random(void **state) {
    (void)state;
    const int drawn = getenv("SNUG_TEST_FULL") ? 400 : 10;
    uint32_t at = 0;
    for (int i = 0; i < drawn; i++) {
        char both[400], spread[400];
        const char *device;
        product p;
        const sn_model_config config = draw(&at, &p, both, spread, &device);
        compare(&config, device, &p, 1e-5);
    }
}

/* ---- Whole runs ---- */

static char folder[600], gguf[600], data[600];

static int start(void **state) {
    (void)state;
    training_open("products");
    const sn_model_config c = llama(2, true);
    snprintf(folder, sizeof folder, "%s", training_path("model"));
    snprintf(gguf, sizeof gguf, "%s", training_path("model.gguf"));
    snprintf(data, sizeof data, "%s", training_path("rows.jsonl"));
    tiny_write(&c, folder, gguf, SN_Q4_0);
    training_rows(data, 24);
    return 0;
}

static void run(const char *model, const char *options, const char *out, trained *t) {
    training_steadily(model, options, data, training_path("%s", out), t);
}

/* A run's losses from its step `first` on are those of the whole run. */
static void assert_losses(const trained *whole, const trained *part, const char *what) {
    assert_true(part->steps >= STEPS - STOP && part->step[part->steps - 1] == STEPS);
    for (int k = 0; k < part->steps; k++) {
        const double loss = whole->loss[part->step[k] - 1];
        if (!(part->loss[k] / loss - 1 <= 1e-5 && loss / part->loss[k] - 1 <= 1e-5))
            fail_msg("%s: step %d: loss %.9g, one rank %.9g", what, (int)part->step[k], part->loss[k], loss);
    }
}

/* Saved under one product, gone on with under the next: of 4 rows a step, whoever holds them. */
static void resumed_as_another(void **state) {
    (void)state;
    static const char *const spreads[] = {"thread_ranks=8 tp=2 pp=2 cp=2 gradient_accumulation_steps=4",
                                          "thread_ranks=8 tp=2 pp=2 zero_stage=3 gradient_accumulation_steps=2 sequence_parallel=on",
                                          "thread_ranks=8 pp=2 cp=2 zero_stage=2 gradient_accumulation_steps=2 recompute=all",
                                          "thread_ranks=6 tp=3 cp=2 gradient_accumulation_steps=4",
                                          "thread_ranks=4 tp=2 zero_stage=1 gradient_accumulation_steps=2 " ON_DISK};
    static const struct { const char *how, *result; } jobs[] = {{"", "model"}, {LORA, "adapter_model"}, {QLORA, "adapter_model"}};
    enum { SPREADS = sizeof spreads / sizeof spreads[0] };
    training_warnings();
    for (int j = 0; j < 3; j++) {
        const char *model = j == 2 ? gguf : folder;
        trained whole, part;
        char options[300];
        snprintf(options, sizeof options, "max_steps=%d gradient_accumulation_steps=4 %s", STEPS, jobs[j].how);
        run(model, options, "whole", &whole);
        for (int from = j; from <= SPREADS; from += j ? 3 : 1) {
            const char *before = from ? spreads[from - 1] : "gradient_accumulation_steps=4",
                       *after = from < SPREADS ? spreads[from] : "gradient_accumulation_steps=4";
            char name[32];
            snprintf(name, sizeof name, "part%d_%d", j, from);
            snprintf(options, sizeof options, "max_steps=%d %s %s", STOP, jobs[j].how, before);
            run(model, options, name, &part);
            snprintf(options, sizeof options, "max_steps=%d resume=on %s %s", STEPS, jobs[j].how, after);
            run(model, options, name, &part);
            assert_losses(&whole, &part, options);
            training_near(training_path("whole/%s.safetensors", jobs[j].result), training_path("%s/%s.safetensors", name, jobs[j].result),
                          1e-5);
            training_near(training_path("whole/checkpoint-%d/state.safetensors", STEPS),
                          training_path("%s/checkpoint-%d/state.safetensors", name, STEPS), 1e-5);
        }
    }
    assert_int_equal(training_warnings(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tensor_and_pipeline),
                                       cmocka_unit_test(tensor_and_context),
                                       cmocka_unit_test(pipeline_and_context),
                                       cmocka_unit_test(tensor_pipeline_data),
                                       cmocka_unit_test(tensor_context_data),
                                       cmocka_unit_test(pipeline_context_data),
                                       cmocka_unit_test(tensor_pipeline_context),
                                       cmocka_unit_test(all_of_them),
                                       cmocka_unit_test(on_disk),
                                       cmocka_unit_test(activations_elsewhere),
                                       cmocka_unit_test(in_turns_and_in_8_bits),
                                       cmocka_unit_test(released),
                                       cmocka_unit_test(at_random),
                                       cmocka_unit_test(other_rules),
                                       cmocka_unit_test(resumed_as_another)};
    return cmocka_run_group_tests(tests, start, training_close);
}
