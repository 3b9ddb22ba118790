/* Tensor parallelism gives one rank's losses and weights: sums come in another order, so within 1e-5 in f32, with adapters, recomputation,
 * accumulation, shards of tokens between blocks, data parallelism and its shards beside it. Nothing divides evenly here. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/cluster.h"
#include "support/world.h"

enum { MOST = 4, LENGTH = 6, ROWS = 8, STEPS = 5 };

typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
    float *weights; /* of all parameters that are trained (the masters, where there are) and of their moments, one after the other */
    size_t n;
} outcome;

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

/* All of a value in f32, from whichever ranks hold it; they agree where several do. */
static void collect(const world *w, sn_pid p, float *to) {
    const sn_persistent *e = &w->s.job->persistent[p];
    int64_t all, where, n;
    assert_true(sn_shape_elements(&e->shape, &all));
    for (int64_t i = 0; i < all; i++) to[i] = NAN;
    for (int r = 0; r < w->ranks; r++) {
        const sn_placed *at = sn_run_placed(w->runs[r], p);
        const float *data = sn_run_persistent(w->runs[r], p);
        assert_true(e->rest.form == SN_F32 && (data || !at->count));
        for (int64_t k = 0; k < at->count; k += n) {
            n = sn_placed_run(at, &e->shape, k, &where);
            assert_true(n > 0 && where >= 0 && where + n <= all);
            for (int64_t i = 0; i < n; i++) {
                if (!isnan(to[where + i]) && to[where + i] != data[k + i])
                    fail_msg("%s[%ld]: rank %d holds another value", e->name, (long)(where + i), r);
                to[where + i] = data[k + i];
            }
        }
    }
    for (int64_t i = 0; i < all; i++)
        if (isnan(to[i])) fail_msg("%s[%ld] is nowhere", e->name, (long)i);
}

static void train(const sn_model_config *model, int ranks, const char *options, outcome *out) {
    world w;
    world_open(&w, &rows, model, "cpu", ranks, options);
    const sn_job *job = w.s.job;
    sn_pid loss = sn_job_find(job, "loss");
    int first = sn_job_role_index(job, SN_ROLE_TRAIN), next = sn_job_role_index(job, SN_ROLE_TRAIN_NEXT);
    int update = sn_job_role_index(job, SN_ROLE_UPDATE), updating = update < 0 ? first : update;
    for (int step = 0; step < STEPS; step++) {
        float hyper[8] = {1e-3f, (float)(1 - pow(0.9, step + 1)), (float)(1 - pow(0.999, step + 1)), 1, (float)(step + 1)};
        int64_t labels = 0;
        for (int64_t at = 0; at < ROWS * LENGTH; at++) labels += label_of(at, step, model->vocab_size) >= 0;
        for (int r = 0; r < ranks; r++) {
            memset(sn_run_persistent(w.runs[r], loss), 0, 16);
            memcpy(sn_run_io(w.runs[r], updating, "hyper", 0, NULL), hyper, sizeof hyper);
        }
        for (int64_t m = 0; m < w.accumulation; m++) {
            world_fill(&w, m ? next : first, step, m, 0, 1.0f / (float)labels);
            world_run(&w, m ? next : first);
        }
        if (update >= 0) world_run(&w, update);
        double sum = 0;
        for (int r = 0; r < ranks; r++)
            if (!sn_mesh_index(&job->mesh, r, SN_MESH_TP)) sum += ((double *)sn_run_persistent(w.runs[r], loss))[0];
        out->loss[step] = sum / (double)labels;
        out->norm[step] = world_norm(&w, updating, options);
    }
    out->n = 0;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        bool weight = e->class_of == SN_CLASS_WEIGHTS && e->trainable && sn_job_master(job, (sn_pid)p) == SN_NONE,
             state = e->class_of == SN_CLASS_OPTIMIZER && e->parent != SN_NONE;
        int64_t n;
        if (!weight && !state) continue;
        assert_true(sn_shape_elements(&e->shape, &n));
        out->weights = sn_realloc(out->weights, (out->n + (size_t)n) * sizeof(float));
        collect(&w, (sn_pid)p, out->weights + out->n);
        out->n += (size_t)n;
    }
    world_close(&w);
}

/* Adam divides by the root of a moment: with its usual epsilon a gradient that is all rounding moves a weight as much as any other. */
#define STEADY "threads=1 recompute=none adam_epsilon=1e-5 "

/* These options at these ranks against one rank without `spread`, which says how ranks are laid out. */
static void check(sn_model_config config, const char *more, int ranks, const char *spread, double within) {
    outcome one = {0}, other = {0};
    char options[512];
    snprintf(options, sizeof options, STEADY "%s", more);
    train(&config, 1, options, &one);
    snprintf(options, sizeof options, STEADY "%s %s", more, spread);
    train(&config, ranks, options, &other);
    assert_true(isfinite(one.loss[0]) && one.loss[STEPS - 1] != one.loss[0] && one.n == other.n && one.n > 0);
    for (int k = 0; k < STEPS; k++) {
        double loss = fabs(one.loss[k] - other.loss[k]) / one.loss[k],
               norm = fabs((double)(one.norm[k] - other.norm[k])) / (double)one.norm[k];
        if (!(loss <= within && norm <= 10 * within))
            fail_msg("%d ranks, %s: step %d: loss %.9g, one rank %.9g; norm %.9g, %.9g", ranks, options, k, other.loss[k], one.loss[k],
                     (double)other.norm[k], (double)one.norm[k]);
    }
    double worst = test_error(other.weights, one.weights, one.n);
    if (!(worst <= within)) fail_msg("%d ranks, %s: weights or moments differ by %g", ranks, options, worst);
    sn_free(one.weights);
    sn_free(other.weights);
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
    } cases[] = {{12, "tp=3"}, {12, "tp=2 zero_stage=3 sequence_parallel=on"}, {9, "tp=3 zero_stage=2"}, {8, "tp=2 zero_stage=1 precision=bf16"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        sn_options *recipe = tiny_recipe(cases[k].options);
        sn_model_config config = odd_llama(false, true);
        config.vocab_size = 20011;
        sn_session s = {.ranks = cases[k].ranks};
        assert_ok(sn_device_find("cpu", 1, &s.device));
        s.cluster.addresses = s.device.shape.addresses;
        assert_ok(sn_session_mesh(&s, recipe));
        sn_training_shape shape = {.tokens = (int64_t)cases[k].ranks * 7};
        assert_ok(sn_job_for_training(&config, NULL, &shape, recipe, &s.cluster, NULL, &s.job));
        sn_plan *plans[12], *most;
        int *first;
        size_t n;
        assert_ok(sn_plan_rank_classes(s.job, &first, &n));
        assert_true(n > 1 && n <= (size_t)cases[k].ranks);
        for (int r = 0; r < cases[k].ranks; r++) {
            sn_plan_request request = {.device = s.device.shape, .reuse = true, .rank = r};
            assert_ok(sn_plan_make(s.job, &request, &plans[r]));
            bool alike = false;
            for (size_t i = 0; i < n && first[i] <= r; i++)
                alike |= plans[first[i]]->bill.total == plans[r]->bill.total &&
                         !memcmp(plans[first[i]]->bill.at_rest, plans[r]->bill.at_rest, sizeof plans[r]->bill.at_rest);
            if (!alike) fail_msg("%s: rank %d is like none that is planned", cases[k].options, r);
        }
        sn_plan_request request = {.device = s.device.shape, .reuse = true};
        assert_ok(sn_plan_cluster(s.job, &request, &most));
        for (int r = 0; r < cases[k].ranks; r++) assert_true(plans[r]->bill.total <= most->bill.total);
        sn_plan_free(most);
        for (int r = 0; r < cases[k].ranks; r++) sn_plan_free(plans[r]);
        sn_free(first);
        sn_job_free(s.job);
        sn_options_close(recipe);
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
    refused(odd_llama(true, false), 2, "tp=2 optimizer=adamw_8bit", "adamw_8bit");
    refused(odd_llama(true, false), 2, "tp=2 gradient_release=on max_grad_norm=0", "looks at each gradient alone");
    refused(tiny_gpt2(), 3, "tp=3", "4 key/value heads, 2 a rank, leave nothing for the last");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(heads_feed_forward_vocabulary),
                                       cmocka_unit_test(shards_of_tokens),
                                       cmocka_unit_test(biases),
                                       cmocka_unit_test(beside_data_parallel),
                                       cmocka_unit_test(accumulation_and_recomputation),
                                       cmocka_unit_test(adapters),
                                       cmocka_unit_test(gpt2),
                                       cmocka_unit_test(sixteen_bits),
                                       cmocka_unit_test(ranks_of_a_class),
                                       cmocka_unit_test(bytes_fall),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
