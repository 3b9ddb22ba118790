/* Tensor parallelism gives one rank's losses and weights: sums come in another order, so within 1e-5 in f32, with adapters, recomputation,
 * accumulation, shards of tokens between blocks, data parallelism and its shards beside it. Nothing divides evenly here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/cluster.h"
#include "support/world.h"

enum { LENGTH = 6, ROWS = 8 };

/* 3 key/value heads with 2 queries each, an odd vocabulary and feed-forward. */
static sn_model_config odd_llama(bool tied, bool biases) {
    sn_model_config c = tiny_llama();
    c.vocab_size = 97;
    c.hidden_size = 40;
    c.num_heads = 6;
    c.num_kv_heads = 3;
    c.head_dim = 8;
    c.intermediate_size = 53;
    c.tie_word_embeddings = tied;
    c.attention_bias = c.mlp_bias = biases;
    return c;
}

static int32_t label_of(int64_t at, int step, int64_t vocabulary) { return at % 5 == 1 ? -100 : (int32_t)((at * 29 + step) % vocabulary); }

static const world_rows rows = {.rows = ROWS, .length = LENGTH, .label = label_of};

static void train(const sn_model_config *model, int ranks, const char *options, world_outcome *out) {
    world w;
    world_open(&w, &rows, model, "cpu", ranks, options);
    world_train(&w, 1e-3, options, out);
    world_keep(&w, out);
    world_close(&w);
}

/* Adam divides by the root of a moment: with its usual epsilon a gradient that is all rounding moves a weight as much as any other. */
#define STEADY "threads=1 recompute=none adam_epsilon=1e-5 "

/* These options at these ranks against one rank without `spread`, which says how ranks are laid out. */
static void check(sn_model_config config, const char *more, int ranks, const char *spread, double within) {
    world_outcome one = {0}, other = {0};
    char options[512];
    snprintf(options, sizeof options, STEADY "%s", more);
    train(&config, 1, options, &one);
    snprintf(options, sizeof options, STEADY "%s %s", more, spread);
    train(&config, ranks, options, &other);
    world_compare(&other, &one, within, options);
    world_forget(&one);
    world_forget(&other);
}

static void heads_feed_forward_vocabulary(void **state) {
    (void)state;
    check(odd_llama(true, false), "", 2, "tp=2", 1e-5);
    check(odd_llama(true, false), "", 3, "tp=3", 1e-5);
    check(odd_llama(false, false), "", 2, "tp=2", 1e-5);
    check(odd_llama(false, false), "", 3, "tp=3", 1e-5);
}

static void shards_of_tokens(void **state) {
    (void)state;
    check(odd_llama(true, false), "", 2, "tp=2 sequence_parallel=on", 1e-5);
    check(odd_llama(false, false), "", 3, "tp=3 sequence_parallel=on", 1e-5);
}

static void biases(void **state) {
    (void)state;
    check(odd_llama(true, true), "", 2, "tp=2", 1e-5);
    check(odd_llama(false, true), "", 3, "tp=3 sequence_parallel=on", 1e-5);
}

static void beside_data_parallel(void **state) {
    (void)state;
    check(odd_llama(true, false), "", 4, "tp=2", 1e-5);
    check(odd_llama(true, false), "", 4, "tp=2 sequence_parallel=on", 1e-5);
    for (int stage = 1; stage <= 3; stage++) {
        char spread[64];
        snprintf(spread, sizeof spread, "tp=2 zero_stage=%d", stage);
        check(odd_llama(stage == 2, false), "", 4, spread, 1e-5);
    }
}

static void accumulation_and_recomputation(void **state) {
    (void)state;
    check(odd_llama(true, false), "gradient_accumulation_steps=4", 2, "tp=2", 1e-5);
    check(odd_llama(false, false), "gradient_accumulation_steps=4", 4, "tp=2 zero_stage=2 recompute=light", 1e-5);
    static const char *const modes[] = {"light", "selective", "attention", "every:1", "all"};
    for (int i = 0; i < 5; i++) {
        char spread[64];
        snprintf(spread, sizeof spread, "tp=%d recompute=%s sequence_parallel=%s", 2 + i % 2, modes[i], i % 3 ? "on" : "off");
        check(odd_llama(true, false), "", 2 + i % 2, spread, 1e-5);
    }
}

static void adapters(void **state) {
    (void)state;
    static const char lora[] = "lora=on lora_rank=4 lora_dropout=0.1";
    check(odd_llama(true, false), lora, 2, "tp=2", 1e-5);
    check(odd_llama(true, false), lora, 3, "tp=3 sequence_parallel=on", 1e-5);
    check(odd_llama(false, false), lora, 4, "tp=2 sequence_parallel=on zero_stage=3 recompute=all", 1e-5);
    check(odd_llama(true, false), "lora=on lora_rank=4 gradient_accumulation_steps=4", 4, "tp=2", 1e-5);
}

/* Updates inside backward: the bits of the ordinary step at as many ranks. */
static void released(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *options;
    } cases[] = {{2, "tp=2"},
                 {3, "tp=3 sequence_parallel=on recompute=all"},
                 {4, "tp=2 zero_stage=3 recompute=light"},
                 {4, "tp=2 zero_stage=2 precision=bf16 optimizer=lion"},
                 {2, "tp=2 lora=on lora_rank=4"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sn_model_config config = odd_llama(i % 2, false);
        world_outcome after = {0}, inside = {0};
        char options[256];
        snprintf(options, sizeof options, "threads=1 max_grad_norm=0 %s", cases[i].options);
        train(&config, cases[i].ranks, options, &after);
        snprintf(options, sizeof options, "threads=1 max_grad_norm=0 gradient_release=on %s", cases[i].options);
        train(&config, cases[i].ranks, options, &inside);
        world_compare(&inside, &after, 0, options);
        world_forget(&after);
        world_forget(&inside);
    }
}

/* Where one element for each run of 256 lies: with the shard whose runs they are, or nowhere where one would be cut. */
static void runs_of_shards(void **state) {
    (void)state;
    static const struct {
        int64_t rows, columns; /* columns 0: a vector */
        uint8_t dim, at;
        int32_t unit, ranks, wanted; /* 0: it would be cut */
    } cases[] = {
        {576, 576, 0, SN_DEAL_RUN, 192, 2, 864},   {576, 576, 1, SN_DEAL_RUN, 192, 2, 0},   {576, 1536, 1, SN_DEAL_RUN, 1, 2, 3},
        {576, 1536, 1, SN_DEAL_RUN, 1, 4, 0},      {97, 64, 0, SN_DEAL_RUN, 1, 2, 0},       {103, 64, 0, SN_DEAL_RUN, 1, 2, 13},
        {768, 256, 0, SN_DEAL_THIRDS, 64, 2, 128}, {768, 256, 0, SN_DEAL_THIRDS, 1, 3, 86}, {64, 1536, 1, SN_DEAL_THIRDS, 256, 2, 1},
        {64, 768, 1, SN_DEAL_THIRDS, 128, 2, 0},   {1024, 0, 0, SN_DEAL_RUN, 1, 4, 1},      {1000, 0, 0, SN_DEAL_RUN, 1, 4, 0},
        {512, 64, 0, SN_DEAL_FOLDED, 64, 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sn_shape shape = cases[i].columns ? sn_shape_of(cases[i].rows, cases[i].columns) : sn_shape_of(cases[i].rows);
        const sn_split_axis x = {.kind = SN_SHARD, .dim = cases[i].dim, .at = cases[i].at, .unit = cases[i].unit};
        sn_split_axis runs;
        const bool fits = sn_split_of_runs(&shape, &x, cases[i].ranks, 256, &runs);
        if (fits != (cases[i].wanted > 0) ||
            (fits && (runs.unit != cases[i].wanted || runs.dim != x.dim || runs.at != x.at || runs.kind != SN_SHARD)))
            fail_msg("case %zu: %s, %d a rank", i, fits ? "fits" : "is cut", runs.unit);
        const sn_split split = {.axis[SN_MESH_TP] = x};
        const sn_shape of = sn_shape_of_runs(&shape, &split, 256);
        int64_t n, all;
        assert_true(sn_shape_elements(&of, &n) && sn_shape_elements(&shape, &all) && n == (all + 255) / 256);
        assert_int_equal(of.rank, fits && x.dim ? 2 : of.rank);
    }
}

/* Slices of every weight of 4096 elements and more begin and end with a block of 256 on two ranks. */
static sn_model_config llama_in_blocks(void) {
    sn_model_config c = tiny_llama();
    c.vocab_size = 104;
    c.hidden_size = 64;
    c.head_dim = 128;
    c.intermediate_size = 512;
    return c;
}

/* States whose codes have 8 bits. */
static int count_codes(const sn_model_config *model, int ranks, const char *options) {
    world w;
    int n = 0;
    world_plan(&w, &rows, model, "null", ranks, options);
    for (size_t p = 0; p < w.s.job->n_persistent; p++) n += w.s.job->persistent[p].rest.form == SN_U8;
    world_close(&w);
    return n;
}

/* Codes of 8 bits in the same blocks as on one rank; ZeRO's shards of them change no bit. */
static void states_in_blocks(void **state) {
    (void)state;
    static const char both[] = STEADY "optimizer=adamw_8bit weight_decay=0.1";
    sn_model_config models[] = {llama_in_blocks(), llama_in_blocks(), tiny_gpt2()};
    models[1].tie_word_embeddings = false;
    models[2].hidden_size = models[2].intermediate_size = 512;
    models[2].vocab_size = 100;
    models[2].head_dim = 128;
    models[2].num_layers = 1;
    for (int m = 0; m < 3; m++) {
        world_outcome one = {0}, two = {0}, plain = {0};
        train(&models[m], 1, both, &one);
        train(&models[m], 2, STEADY "optimizer=adamw_8bit weight_decay=0.1 tp=2", &two);
        world_compare(&two, &one, 1e-3, "tp=2");
        const int codes = count_codes(&models[m], 1, both);
        assert_true(codes > 8 && count_codes(&models[m], 2, STEADY "optimizer=adamw_8bit weight_decay=0.1 tp=2") == codes);
        for (int stage = 0; stage < 4; stage++) {
            world_outcome sharded = {0};
            char options[256];
            snprintf(options, sizeof options, "%s tp=2 zero_stage=%d sequence_parallel=on", both, stage);
            train(&models[m], 4, options, stage ? &sharded : &plain);
            world_compare(stage ? &sharded : &plain, stage ? &plain : &one, stage ? 0 : 1e-3, options);
            world_forget(&sharded);
        }
        world_forget(&one);
        world_forget(&two);
        world_forget(&plain);
    }
}

/* Where a slice would cut a block, moments stay f32. */
static void slices_that_cut_blocks(void **state) {
    (void)state;
    sn_model_config config = llama_in_blocks();
    world_outcome one = {0}, several = {0};
    config.intermediate_size = 504;
    train(&config, 1, STEADY "optimizer=adamw_8bit", &one);
    train(&config, 2, STEADY "optimizer=adamw_8bit tp=2", &several);
    for (int i = 0; i < WORLD_STEPS; i++)
        if (!(fabs(several.loss[i] / one.loss[i] - 1) <= 1e-3))
            fail_msg("step %d: loss %.9g, one rank %.9g", i + 1, several.loss[i], one.loss[i]);
    /* down_proj, of two blocks */
    assert_int_equal(count_codes(&config, 2, "threads=1 optimizer=adamw_8bit tp=2"),
                     count_codes(&config, 1, "threads=1 optimizer=adamw_8bit") - 4);
    world_forget(&one);
    world_forget(&several);
}

/* q, k and v in one weight, of each of which a rank holds its heads; learnt positions, LayerNorm, biases everywhere. */
static void gpt2(void **state) {
    (void)state;
    check(tiny_gpt2(), "", 2, "tp=2", 1e-5);
    check(tiny_gpt2(), "", 4, "tp=4 sequence_parallel=on", 1e-5);
    check(tiny_gpt2(), "gradient_accumulation_steps=4", 4, "tp=2 zero_stage=3 recompute=all", 1e-5);
    check(tiny_gpt2(), "lora=on lora_rank=4 lora_dropout=0.1", 2, "tp=2 sequence_parallel=on", 1e-5);
}

/* Sums of 16-bit activations in another order. */
static void sixteen_bits(void **state) {
    (void)state;
    check(odd_llama(true, false), "precision=bf16 adam_epsilon=1e-3", 2, "tp=2", 2e-2);
    check(odd_llama(false, false), "precision=bf16 adam_epsilon=1e-3", 4, "tp=2 zero_stage=3 sequence_parallel=on", 2e-2);
}

/* Ranks that are not planned are like one that is. */
static void ranks_of_a_class(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *options;
    } cases[] = {
        {12, "tp=3"}, {12, "tp=2 zero_stage=3 sequence_parallel=on"}, {9, "tp=3 zero_stage=2"}, {8, "tp=2 zero_stage=1 precision=bf16"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        sn_model_config config = odd_llama(false, true);
        config.vocab_size = 20011;
        const size_t n = world_classes(&config, cases[k].ranks, cases[k].options);
        assert_true(n > 1 && n <= (size_t)cases[k].ranks);
    }
}

/* Text of a graph names each axis of the mesh as it is called, whatever their order. */
static void axes_have_names(void **state) {
    (void)state;
    static const struct {
        const char *options, *text, *other;
    } cases[] = {{"tp=2", "shard(tp, dim", "(dp"},
                 {"", "shard(dp, dim 0)", "(tp"},
                 {"context_parallel_size=2", "shard(cp, dim 0, folded)", "(tp"},
                 {"zero_stage=1", "shard(dp, unit", "(replica"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        world w;
        sn_str text = {0};
        sn_model_config config = odd_llama(true, false);
        config.vocab_size = 997; /* some units to share out */
        world_plan(&w, &rows, &config, "null", 2, cases[k].options);
        for (int g = 0; g < w.s.job->n_graphs; g++) sn_graph_print(w.s.job->graphs[g], &text);
        if (!strstr(text.data, cases[k].text) || strstr(text.data, cases[k].other))
            fail_msg("'%s': the graphs lack '%s', or have '%s'", cases[k].options, cases[k].text, cases[k].other);
        sn_str_free(&text);
        world_close(&w);
    }
}

/* SmolLM2's heads are 3 key/value ones of 3 queries: two ranks hold two and one. */
static void bytes_fall(void **state) {
    (void)state;
    uint64_t held[4] = {0};
    for (int ranks = 1; ranks <= 3; ranks++) {
        char options[64];
        snprintf(options, sizeof options, "tp=%d", ranks);
        sn_options *recipe = tiny_recipe(options);
        sn_model_config config;
        assert_true(sn_named_shape("smollm2-135m", &config));
        sn_session s = {.ranks = ranks};
        assert_ok(sn_device_find("null", 1, &s.device));
        s.cluster.addresses = s.device.shape.addresses;
        assert_ok(sn_session_mesh(&s, recipe));
        sn_training_shape shape = {.tokens = 64};
        assert_ok(sn_job_for_training(&config, NULL, &shape, recipe, &s.cluster, NULL, &s.job));
        sn_plan *plan;
        sn_plan_request request = {.device = s.device.shape, .reuse = true};
        assert_ok(sn_plan_cluster(s.job, &request, &plan));
        held[ranks] = plan->bill.at_rest[SN_CLASS_WEIGHTS];
        assert_true(plan->bill.at_rest[SN_CLASS_GRADIENTS] == held[ranks] && plan->bill.at_rest[SN_CLASS_OPTIMIZER] >= 2 * held[ranks]);
        sn_plan_free(plan);
        sn_job_free(s.job);
        sn_options_close(recipe);
    }
    const uint64_t heads = 30ull * 2 * 576 * (576 + 192), mlp = 30ull * 3 * 576 * 1536, vocabulary = 49152ull * 576, norms = 61 * 576;
    assert_int_equal(held[1], 4 * (heads + mlp + vocabulary + norms));
    assert_int_equal(held[2], 4 * (heads / 3 * 2 + mlp / 2 + vocabulary / 2 + norms));
    assert_int_equal(held[3], 4 * ((heads + mlp + vocabulary) / 3 + norms));
}

static void refused(sn_model_config config, int ranks, const char *options, const char *why) {
    sn_options *recipe = tiny_recipe(options);
    sn_session s = {.ranks = ranks};
    sn_job *job = NULL;
    assert_ok(sn_device_find("cpu", 1, &s.device));
    s.cluster.addresses = s.device.shape.addresses;
    sn_training_shape shape = {.tokens = ROWS * LENGTH};
    sn_status status = sn_session_mesh(&s, recipe);
    if (status == SN_OK) status = sn_job_for_training(&config, NULL, &shape, recipe, &s.cluster, NULL, &job);
    assert_int_not_equal(status, SN_OK);
    if (!strstr(sn_error_text(), why)) fail_msg("%s: %s", options, sn_error_text());
    sn_options_close(recipe);
}

static void refuses(void **state) {
    (void)state;
    refused(odd_llama(true, false), 3, "tp=2", "tensor_parallel_size is 2, which does not divide 3 ranks");
    refused(odd_llama(true, false), 4, "tp=4", "tensor_parallel_size is 4, but the model has only 3 key/value heads");
    sn_model_config five = odd_llama(true, false);
    five.num_heads = five.num_kv_heads = 5;
    refused(five, 4, "tp=4", "5 key/value heads, 2 a rank, leave nothing for the last");
    refused(odd_llama(true, false), 2, "tp=2 optimizer=muon", "work on whole matrices");
    refused(odd_llama(true, false), 2, "tp=2 optimizer=galore", "work on whole matrices");
    refused(tiny_gpt2(), 3, "tp=3", "4 key/value heads, 2 a rank, leave nothing for the last");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(heads_feed_forward_vocabulary),
                                       cmocka_unit_test(shards_of_tokens),
                                       cmocka_unit_test(biases),
                                       cmocka_unit_test(beside_data_parallel),
                                       cmocka_unit_test(accumulation_and_recomputation),
                                       cmocka_unit_test(adapters),
                                       cmocka_unit_test(released),
                                       cmocka_unit_test(runs_of_shards),
                                       cmocka_unit_test(states_in_blocks),
                                       cmocka_unit_test(slices_that_cut_blocks),
                                       cmocka_unit_test(gpt2),
                                       cmocka_unit_test(sixteen_bits),
                                       cmocka_unit_test(ranks_of_a_class),
                                       cmocka_unit_test(axes_have_names),
                                       cmocka_unit_test(bytes_fall),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
