/* Training in turns: what has no turn keeps its bits, a turn is the training of its block alone, backward ends there, and turns share
 * bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/turns.h"
#include "models/model.h"
#include "support/world.h"

static void every_turn_once_a_round(void **state) {
    (void)state;
    sn_turns t = {.count = 32, .steps = 3, .seed = 42};
    int first[32], differ = 0;
    for (int round = 0; round < 5; round++) {
        bool seen[32] = {0};
        for (int i = 0; i < 32; i++) {
            const int64_t update = (round * 32 + i) * 3;
            const int turn = sn_turn_at(&t, update);
            assert_true(turn >= 0 && turn < 32 && !seen[turn]);
            seen[turn] = true;
            for (int k = 0; k < 3; k++) {
                assert_int_equal(sn_turn_at(&t, update + k), turn);
                assert_int_equal(sn_turn_step(&t, update + k), k);
            }
            differ += round && turn != first[i];
            if (!round) first[i] = turn;
        }
    }
    assert_true(differ > 90);
    t.order = SN_TURNS_ASCENDING;
    assert_int_equal(sn_turn_at(&t, 0), 0);
    assert_int_equal(sn_turn_at(&t, 95), 31);
    assert_int_equal(sn_turn_at(&t, 96), 0);
    t.order = SN_TURNS_DESCENDING;
    assert_int_equal(sn_turn_at(&t, 0), 31);
    assert_int_equal(sn_turn_at(&t, 95), 0);
    t = (sn_turns){0}; /* a job without turns */
    assert_int_equal(sn_turn_at(&t, 7), 0);
    assert_int_equal(sn_turn_step(&t, 7), 7);
}

/* The bytes of every weight, in a row; at[p]: where those of p begin. */
static char *weights_of(const tiny *t, size_t *at) {
    size_t n = 0;
    for (size_t p = 0; p < t->job->n_persistent; p++) {
        at[p] = n;
        if (t->job->persistent[p].class_of == SN_CLASS_WEIGHTS) n += (size_t)t->plan->persistent[p].bytes;
    }
    char *all = malloc(n);
    assert_non_null(all);
    for (size_t p = 0; p < t->job->n_persistent; p++)
        if (t->job->persistent[p].class_of == SN_CLASS_WEIGHTS)
            assert_ok(sn_run_read(t->run, (sn_pid)p, 0, all + at[p], (size_t)t->plan->persistent[p].bytes));
    return all;
}

static void check_turns(const char *options, sn_model_config config, const char *device) {
    enum { STEPS = 16 };
    tiny t;
    size_t before_at[512], after_at[512];
    double loss = 0, first = 0;
    float norm;
    tiny_open(&t, &config, options, device, true);
    t.one_batch = true;
    assert_true(t.job->n_persistent < 512 && t.job->turns.count >= 3);
    for (int step = 0; step < STEPS; step++) {
        char *before = weights_of(&t, before_at);
        loss = tiny_step(&t, step, &norm);
        if (!step) first = loss;
        if (!isfinite(loss) || !(norm > 0)) fail_msg("%s: step %d: loss %g, norm %g", options, step, loss, (double)norm);
        char *after = weights_of(&t, after_at);
        const int turn = sn_turn_at(&t.job->turns, step);
        int changed = 0;
        for (size_t p = 0; p < t.job->n_persistent; p++) {
            const sn_persistent *e = &t.job->persistent[p];
            if (e->class_of != SN_CLASS_WEIGHTS) continue;
            bool same = !memcmp(before + before_at[p], after + after_at[p], (size_t)t.plan->persistent[p].bytes);
            if (!same && e->turn != turn) fail_msg("%s: step %d: %s changes in turn %d", options, step, e->name, turn);
            changed += !same;
        }
        if (!changed) fail_msg("%s: step %d: nothing changes", options, step);
        free(before);
        free(after);
    }
    if (!(loss < first)) fail_msg("%s: loss %g, %g before", options, loss, first);
    tiny_close(&t);
}

static void others_keep_their_bits(void **state) {
    (void)state;
    static const char *const with[] = {"optimizer=adamw weight_decay=0.1",
                                       "optimizer=sgd",
                                       "optimizer=muon",
                                       "optimizer=galore galore_rank=8 galore_update_gap=2",
                                       "optimizer=adafactor",
                                       "optimizer=adamw_8bit",
                                       "optimizer=lion moment_dtype=bf16",
                                       "precision=bf16",
                                       "precision=fp16 recompute=all",
                                       "gradient_accumulation_steps=3",
                                       "gradient_accumulation_steps=2 recompute=every:2 precision=bf16",
                                       "gradient_release=on max_grad_norm=0",
                                       "recompute=none layerwise_embeddings=off"};
    static const char *const orders[] = {"random", "ascending", "descending"};
    for (int family = 0; family < 3; family++)
        for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
            char options[256];
            sn_model_config config = family == 1 ? tiny_gpt2() : tiny_llama();
            config.tie_word_embeddings = family < 2;
            config.num_layers = 3;
            snprintf(options, sizeof options, "threads=1 layerwise=on layerwise_steps=3 layerwise_order=%s %s", orders[i % 3], with[i]);
            check_turns(options, config, "cpu");
        }
}

static void other_tiers(void **state) {
    (void)state;
    check_turns("threads=1 layerwise=on layerwise_steps=3 precision=bf16 offload_optimizer=host offload_gradients=host offload_param=host",
                tiny_llama(), "cpu-split");
    check_turns("threads=1 layerwise=on layerwise_steps=3 offload_optimizer=disk offload_dir=layerwise_test_disk", tiny_llama(), "cpu");
}

/* A job in which one block alone can be trained, made without turns. */
static void open_alone(tiny *t, const sn_model_config *config, const char *options, const tiny *turns, int turn) {
    *t = (tiny){.config = *config, .tokens = 48, .recipe = tiny_recipe(options)};
    assert_ok(sn_device_find("cpu", 1, &t->device));
    t->cluster.addresses = t->device.shape.addresses;
    t->cluster.mesh = sn_mesh_alone();
    sn_model_shape shape = {.tokens = t->tokens};
    assert_ok(sn_job_new(&t->job));
    assert_ok(sn_model_build(sn_job_add_graph(t->job, "step", SN_ROLE_TRAIN), config, &shape, NULL));
    for (size_t p = 0; p < t->job->n_persistent; p++) t->job->persistent[p].trainable &= turns->job->persistent[p].turn == turn;
    assert_ok(sn_passes_run(t->job, t->recipe, &t->cluster, NULL, NULL));
    sn_plan_request request = {.device = t->device.shape, .reuse = true};
    assert_ok(sn_plan_make(t->job, &request, &t->plan));
    assert_ok(sn_run_open(t->plan, &t->device, NULL, &t->run));
}

static void a_turn_is_its_block_alone(void **state) {
    (void)state;
    static const char *const with[] = {"recompute=none weight_decay=0.1", "recompute=all optimizer=sgd momentum=0.9",
                                       "recompute=light optimizer=adamw_8bit", "recompute=every:2 optimizer=adafactor max_grad_norm=0.01"};
    for (int family = 0; family < 2; family++)
        for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
            char options[160], in_turns[256];
            sn_model_config config = family ? tiny_gpt2() : tiny_llama();
            config.num_layers = 3;
            snprintf(options, sizeof options, "threads=1 %s", with[i]);
            snprintf(in_turns, sizeof in_turns, "%s layerwise=on layerwise_steps=4 layerwise_order=ascending", options);
            for (int turn = 0; turn < 5; turn++) {
                tiny a, b;
                tiny_open(&a, &config, in_turns, "cpu", true);
                assert_int_equal(a.job->turns.count, 5);
                open_alone(&b, &config, options, &a, turn);
                for (size_t p = 0; p < b.job->n_persistent; p++) { /* weights come first, and are the same in both */
                    if (b.job->persistent[p].class_of != SN_CLASS_WEIGHTS) break;
                    assert_string_equal(a.job->persistent[p].name, b.job->persistent[p].name);
                    assert_ok(sn_run_write(b.run, (sn_pid)p, 0, sn_run_persistent(a.run, (sn_pid)p), (size_t)b.plan->persistent[p].bytes));
                }
                b.job->turns = (sn_turns){.count = 1, .steps = 4}; /* numbers the steps alike */
                for (int k = 0; k < 4; k++) {
                    float x, y;
                    double l = tiny_step(&a, turn * 4 + k, &x), m = tiny_step(&b, turn * 4 + k, &y);
                    if (memcmp(&l, &m, 8) || memcmp(&x, &y, 4))
                        fail_msg("%s, turn %d, step %d: loss %.17g, alone %.17g; norm %.9g, %.9g", in_turns, turn, k, l, m, (double)x,
                                 (double)y);
                }
                for (size_t p = 0; p < b.job->n_persistent && b.job->persistent[p].class_of == SN_CLASS_WEIGHTS; p++)
                    assert_memory_equal(sn_run_persistent(a.run, (sn_pid)p), sn_run_persistent(b.run, (sn_pid)p),
                                        (size_t)b.plan->persistent[p].bytes);
                tiny_close(&a);
                tiny_close(&b);
            }
        }
}

/* Memory reuse changes no bit: nothing of a turn is read in another. */
static void reuse_is_exact(void **state) {
    (void)state;
    static const char *const with[] = {"recompute=all", "precision=bf16 gradient_accumulation_steps=2",
                                       "optimizer=muon gradient_release=on max_grad_norm=0"};
    for (int family = 0; family < 2; family++)
        for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
            double loss[2][12];
            char *weights[2], options[200];
            size_t at[512], bytes = 0;
            for (int reuse = 0; reuse < 2; reuse++) {
                sn_model_config config = family ? tiny_gpt2() : tiny_llama();
                tiny t;
                snprintf(options, sizeof options, "threads=1 layerwise=on layerwise_steps=2 seed=%d %s", (int)i, with[i]);
                tiny_open(&t, &config, options, "cpu", reuse);
                for (int k = 0; k < 12; k++) loss[reuse][k] = tiny_step(&t, k, NULL);
                weights[reuse] = weights_of(&t, at);
                bytes = 0;
                for (size_t p = 0; p < t.job->n_persistent; p++)
                    bytes += t.job->persistent[p].class_of == SN_CLASS_WEIGHTS ? (size_t)t.plan->persistent[p].bytes : 0;
                tiny_close(&t);
            }
            if (memcmp(loss[0], loss[1], sizeof loss[0]) || memcmp(weights[0], weights[1], bytes))
                fail_msg("%s: memory reuse changes bits", options);
            free(weights[0]);
            free(weights[1]);
        }
}

static double flops_in(const sn_program *p, int turn) {
    double sum = 0;
    for (uint32_t k = 0; k < p->count; k++)
        if (sn_in_turn(p->instrs[k].turns, turn)) sum += p->instrs[k].flops;
    return sum;
}

/* In a turn, no gradient of a lower layer is made, and the bytes between steps are those of the largest turn. */
static void backward_ends_at_the_block(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    config.num_layers = 8;
    for (int accumulation = 1; accumulation < 3; accumulation++) {
        tiny t, all;
        char options[128];
        snprintf(options, sizeof options, "recompute=all gradient_accumulation_steps=%d", accumulation);
        tiny_open(&all, &config, options, "null", true);
        snprintf(options, sizeof options, "recompute=all layerwise=on gradient_accumulation_steps=%d", accumulation);
        tiny_open(&t, &config, options, "null", true);
        const int index = sn_job_role_index(t.job, SN_ROLE_TRAIN);
        const sn_program *p = &t.plan->programs[index].program;
        const sn_graph *g = t.job->graphs[index];
        assert_int_equal(t.job->turns.count, 10);
        for (uint32_t k = 0; k < p->count; k++) {
            const sn_node *n = &g->nodes[p->instrs[k].node];
            for (int turn = 0; n->phase == SN_PHASE_BACKWARD && turn < 10; turn++)
                if (n->layer >= 0 && turn > n->layer + 1 && sn_in_turn(p->instrs[k].turns, turn))
                    fail_msg("%s %s of layer %d runs in turn %d", p->instrs[k].op, n->name, n->layer, turn);
        }
        for (int turn = 2; turn < 10; turn++)
            assert_true(flops_in(p, turn) < flops_in(p, turn - 1)); /* turn 0 makes no gradient of a matrix of the layers */
        uint64_t most = 0, own[10] = {0};
        for (size_t i = 0; i < t.job->n_persistent; i++) {
            const sn_placed *x = &t.plan->persistent[i];
            assert_true(x->turn < 10);
            if (x->turn >= 0 && !x->within && (own[x->turn] += sn_round_up(x->bytes, 64)) > most) most = own[x->turn];
            for (size_t k = 0; k < i; k++) {
                const sn_placed *y = &t.plan->persistent[k];
                bool together = x->tier == y->tier && !x->within && !y->within && (x->turn < 0 || y->turn < 0 || x->turn == y->turn);
                assert_false(together && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes);
            }
        }
        uint64_t fixed = 0, plain = 0;
        for (size_t i = 0; i < t.job->n_persistent; i++)
            if (t.plan->persistent[i].turn < 0) fixed += sn_round_up(t.plan->persistent[i].bytes, 64);
        for (size_t i = 0; i < all.job->n_persistent; i++) plain += sn_round_up(all.plan->persistent[i].bytes, 64);
        assert_int_equal(t.plan->persistent_bytes[SN_TIER_DEVICE], fixed + most);
        assert_true(fixed + most + fixed < plain);
        const sn_bill *b = &t.plan->bill;
        uint64_t sum = 0;
        for (int c = 0; c < SN_CLASS_COUNT; c++) sum += b->by_class[SN_TIER_DEVICE][c];
        assert_int_equal(sum, b->by_tier[SN_TIER_DEVICE]);
        assert_true(b->by_class[SN_TIER_DEVICE][SN_CLASS_GAP] * 20 < b->by_tier[SN_TIER_DEVICE]);
        assert_true(b->by_class[SN_TIER_DEVICE][SN_CLASS_OPTIMIZER] * 3 < all.plan->bill.by_class[SN_TIER_DEVICE][SN_CLASS_OPTIMIZER]);
        tiny_close(&t);
        tiny_close(&all);
    }
}

/* Micro-batches of a step add up to it in every turn: heads of their own too, whose gradients their op may leave out. */
static void micro_batches_add_up(void **state) {
    (void)state;
    static const world_rows rows = {.rows = 8, .length = 6};
    for (int tied = 0; tied < 2; tied++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            sn_model_config config = tiny_llama();
            config.tie_word_embeddings = tied;
            world_outcome once = {0};
            for (int accumulation = 1; accumulation <= 4; accumulation *= 2) {
                world_outcome several = {0};
                char options[160];
                world w;
                snprintf(options, sizeof options,
                         "threads=1 layerwise=on layerwise_steps=1 adam_epsilon=1e-5 gradient_accumulation_steps=%d", accumulation);
                world_open(&w, &rows, &config, "cpu", accumulation == 1 ? 1 : ranks, options);
                world_train(&w, 1e-3, options, accumulation == 1 ? &once : &several);
                world_keep(&w, accumulation == 1 ? &once : &several);
                world_close(&w);
                if (accumulation > 1) world_compare(&several, &once, 1e-5, options);
                world_forget(&several);
            }
            world_forget(&once);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_turn_once_a_round),   cmocka_unit_test(others_keep_their_bits), cmocka_unit_test(other_tiers),
        cmocka_unit_test(a_turn_is_its_block_alone), cmocka_unit_test(reuse_is_exact),         cmocka_unit_test(backward_ends_at_the_block),
        cmocka_unit_test(micro_batches_add_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
