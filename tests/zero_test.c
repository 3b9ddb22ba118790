/* ZeRO is exact: at the same number of ranks every stage gives stage 0's losses, norms and weights to the last bit, with
 * accumulation, recomputation, 16 bits, adapters; parameters of odd sizes leave some ranks with less or nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/turns.h"
#include "support/world.h"

enum { MOST = 4, LENGTH = 8, ROWS = 16, STEPS = WORLD_STEPS };

typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
    char weights[65];
} outcome;

static sn_model_config odd_llama(void) {
    sn_model_config c = tiny_llama();
    c.vocab_size = 1009;
    c.intermediate_size = 211;
    return c;
}

/* No size but the heads' divides evenly. */
static sn_model_config prime_llama(void) {
    sn_model_config c = tiny_llama();
    c.vocab_size = 1013;
    c.intermediate_size = 223;
    return c;
}

static const world_rows rows = {.rows = ROWS, .length = LENGTH};

static void train_on(const sn_model_config *model, const char *device, int ranks, const char *options, outcome *out) {
    world w;
    world_open(&w, &rows, model, device, ranks, options);
    const sn_job *job = w.s.job;
    world_outcome steps = {0};
    world_train(&w, 1e-2, options, &steps);
    memcpy(out->loss, steps.loss, sizeof out->loss);
    memcpy(out->norm, steps.norm, sizeof out->norm);
    sn_sha256 h;
    sn_sha256_start(&h);
    for (size_t p = 0; p < job->n_persistent; p++) {
        size_t bytes;
        sn_run *holder;
        if (job->persistent[p].class_of != SN_CLASS_WEIGHTS && job->persistent[p].parent == SN_NONE) continue;
        if (job->persistent[p].class_of == SN_CLASS_GRADIENTS) continue;
        if (sn_job_turn(job, (sn_pid)p) >= 0 && sn_job_turn(job, (sn_pid)p) != sn_turn_in_progress(job, STEPS)) continue;
        for (int i = 0; sn_session_piece(&w.s, (sn_pid)p, i, &holder, &bytes); i++) {
            if (!bytes) continue;
            void *data = sn_alloc(bytes);
            assert_non_null(data);
            assert_ok(sn_run_read(holder, (sn_pid)p, 0, data, bytes));
            sn_sha256_add(&h, data, bytes);
            sn_free(data);
        }
    }
    sn_sha256_end(&h, out->weights);
    world_close(&w);
}

static void train(const sn_model_config *model, int ranks, const char *options, outcome *out) {
    train_on(model, "cpu", ranks, options, out);
}

/* Every stage with `more` against stage 0 without `home`, which says where values rest. */
static void check_at(sn_model_config config, const char *more, const char *home) {
    for (int ranks = 2; ranks <= MOST; ranks *= 2)
        for (int accumulation = 1; accumulation <= (strstr(more, "gradient_release") ? 1 : 4); accumulation += 3) {
            outcome plain = {0}, other;
            for (int stage = 0; stage < 4; stage++) {
                char options[256];
                snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=%d zero_stage=%d %s %s", accumulation, stage, more,
                         stage ? home : "");
                memset(&other, 0, sizeof other);
                train(&config, ranks, options, stage ? &other : &plain);
                if (stage && memcmp(&plain, &other, sizeof plain))
                    fail_msg("%d ranks, %s: loss %.17g, stage 0 %.17g; norm %.9g, %.9g; weights %.8s, %.8s", ranks, options,
                             other.loss[STEPS - 1], plain.loss[STEPS - 1], (double)other.norm[STEPS - 1], (double)plain.norm[STEPS - 1],
                             other.weights, plain.weights);
            }
            assert_true(isfinite(plain.loss[0]) && plain.loss[STEPS - 1] != plain.loss[0]);
        }
}

static void check(sn_model_config config, const char *more) { check_at(config, more, ""); }

static void full(void **state) {
    (void)state;
    check(odd_llama(), "recompute=light");
}
static void forms(void **state) {
    (void)state;
    check(odd_llama(), "precision=bf16 recompute=all");
    check(odd_llama(), "moment_dtype=bf16 max_grad_norm=0.1");
    check(odd_llama(), "precision=fp16 optimizer=sgd momentum=0.9");
}
/* 8-bit states are cut at whole blocks; rules that need whole matrices keep those, and split what is left. */
static void small_states(void **state) {
    (void)state;
    check(odd_llama(), "optimizer=adamw_8bit weight_decay=0.1");
    check(odd_llama(), "optimizer=adamw_8bit precision=bf16");
    check(odd_llama(), "optimizer=lion moment_dtype=bf16");
    check(odd_llama(), "optimizer=adafactor precision=bf16");
    check(odd_llama(), "optimizer=muon weight_decay=0.1");
    check(odd_llama(), "optimizer=galore galore_rank=6 galore_update_gap=3 precision=bf16");
}
static void adapters(void **state) {
    (void)state;
    check(odd_llama(), "lora=on lora_rank=130 lora_dropout=0.1 recompute=selective");
}
static void other_tiers(void **state) {
    (void)state;
    check_at(odd_llama(), "precision=bf16 moment_dtype=bf16", "offload_optimizer=disk offload_dir=zero_test_disk");
    check_at(odd_llama(), "recompute=light", "offload_optimizer=disk offload_gradients=disk offload_param=disk offload_dir=zero_test_disk");
}
/* Stages, homes, micro-batches, ranks, recomputation: each alone and with some others; all together where SNUG_TEST_FULL is set. */
static void matrix(void **state) {
    (void)state;
    static const char *const homes[] = {"", "offload_optimizer=disk offload_gradients=disk offload_param=disk offload_dir=zero_test_disk",
                                        "offload_optimizer=host offload_gradients=host offload_param=host"};
    const bool all = getenv("SNUG_TEST_FULL") != NULL;
    int ran = 0, at = 0;
    for (int ranks = 1; ranks <= MOST; ranks *= 2)
        for (int accumulation = 1; accumulation <= 4; accumulation += 3)
            for (int recompute = 0; recompute < 2; recompute++) {
                outcome plain = {0}, other;
                char base[128], options[384];
                snprintf(base, sizeof base, "threads=1 gradient_accumulation_steps=%d recompute=%s", accumulation,
                         recompute ? "all" : "none");
                sn_model_config config = prime_llama();
                train_on(&config, "cpu", ranks, base, &plain);
                for (int home = 0; home < 3; home++)
                    for (int stage = 0; stage < 4; stage++) {
                        if ((!home && !stage) || (!all && at++ % 3)) continue;
                        snprintf(options, sizeof options, "%s zero_stage=%d %s", base, stage, homes[home]);
                        memset(&other, 0, sizeof other);
                        train_on(&config, home == 2 ? "cpu-split" : "cpu", ranks, options, &other);
                        if (memcmp(&plain, &other, sizeof plain))
                            fail_msg("%d ranks, %s: another result than stage 0 in memory", ranks, options);
                        ran++;
                    }
                assert_true(isfinite(plain.loss[0]) && plain.loss[STEPS - 1] != plain.loss[0]);
            }
    assert_true(ran >= (all ? 132 : 44));
}
static void released(void **state) {
    (void)state;
    check(odd_llama(), "gradient_release=on max_grad_norm=0 recompute=all");
    check(odd_llama(), "gradient_release=on max_grad_norm=0 precision=bf16 optimizer=muon");
}
static void in_turns(void **state) {
    (void)state;
    check(odd_llama(), "layerwise=on layerwise_steps=2 layerwise_order=descending recompute=all");
    check(odd_llama(), "layerwise=on layerwise_steps=2 precision=bf16 optimizer=adamw_8bit seed=3");
}
static void gpt2(void **state) {
    (void)state;
    sn_model_config config = tiny_gpt2();
    config.vocab_size = 1009;
    check(config, "recompute=every:1");
}

/* Collectives of an op in the programs of micro-batches, and bytes that a rank sends in them for one step. */
static int count_collectives(const sn_model_config *model, const char *options, const char *op, bool update) {
    world w;
    int n = 0;
    world_open(&w, &rows, model, "cpu", 2, options);
    for (int k = 0; k < w.plans[0]->n_programs; k++) {
        const sn_program *p = &w.plans[0]->programs[k].program;
        if (!(update ? w.plans[0]->programs[k].role == SN_ROLE_UPDATE : sn_role_trains(w.plans[0]->programs[k].role))) continue;
        for (uint32_t i = 0; i < p->count; i++) n += !strcmp(p->instrs[i].op, op);
    }
    world_close(&w);
    return n;
}

/* Small gradients summed together: the same bits, in fewer collectives. */
static void joined(void **state) {
    (void)state;
    static const char *const jobs[] = {"zero_stage=0", "zero_stage=3 recompute=light",
                                       "zero_stage=2 gradient_accumulation_steps=4 precision=bf16", "zero_stage=1 precision=fp16",
                                       "zero_stage=3 gradient_release=on max_grad_norm=0"};
    const sn_model_config config = odd_llama();
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
        for (int ranks = 2; ranks <= MOST; ranks *= 2) {
            outcome apart = {0}, together = {0};
            char options[200];
            snprintf(options, sizeof options, "threads=1 join_sums=0 %s", jobs[j]);
            train(&config, ranks, options, &apart);
            const int before = count_collectives(&config, options, "reduce_scatter", false);
            snprintf(options, sizeof options, "threads=1 join_sums=16KiB %s", jobs[j]);
            train(&config, ranks, options, &together);
            if (memcmp(&apart, &together, sizeof apart)) fail_msg("%d ranks, %s: other bits than apart", ranks, options);
            const int sums = count_collectives(&config, options, "all_reduce", false),
                      left = count_collectives(&config, options, "reduce_scatter", false);
            if (!strstr(jobs[j], "release") && !(sums > 0 && before - left >= 3 * sums))
                fail_msg("%s: %d sums, then %d and %d joined ones", options, before, left, sums);
        }
}

static void assert_near(double a, double b, double tolerance, const char *what, const char *options) {
    if (!(fabs(a - b) <= tolerance * fabs(b))) fail_msg("%s: %s %.9g, wanted %.9g", options, what, a, b);
}

/* One sum over ranks a step: the same for every stage to the last bit, and within a tolerance of a sum after each micro-batch. */
static void one_sum_a_step(void **state) {
    (void)state;
    static const char *const jobs[] = {"recompute=light", "precision=bf16", "optimizer=muon", "optimizer=adamw_8bit"};
    const double tolerance[] = {1e-5, 2e-3, 2e-4, 1e-3};
    const sn_model_config config = odd_llama();
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
        for (int ranks = 2; ranks <= MOST; ranks *= 2) {
            outcome micro = {0}, plain = {0}, other;
            char options[200];
            snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=4 %s", jobs[j]);
            train(&config, ranks, options, &micro);
            for (int stage = 0; stage < 4; stage++) {
                snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=4 gradient_sync=step zero_stage=%d %s", stage,
                         jobs[j]);
                memset(&other, 0, sizeof other);
                train(&config, ranks, options, stage ? &other : &plain);
                if (stage && memcmp(&plain, &other, sizeof plain)) fail_msg("%d ranks, %s: other bits than stage 0", ranks, options);
            }
            for (int i = 0; i < STEPS; i++) {
                assert_near(plain.loss[i], micro.loss[i], tolerance[j], "loss", jobs[j]);
                assert_near((double)plain.norm[i], (double)micro.norm[i], 10 * tolerance[j], "norm", jobs[j]);
            }
        }
    for (int stage = 0; stage < 4; stage++) {
        char options[160];
        snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=4 gradient_sync=step zero_stage=%d", stage);
        assert_int_equal(count_collectives(&config, options, "reduce_scatter", false), 0);
        assert_true(count_collectives(&config, options, "reduce_scatter", true) > 10);
    }
    outcome once = {0}, step = {0}; /* one micro-batch: nothing to put off */
    train(&config, 2, "threads=1 zero_stage=2", &once);
    train(&config, 2, "threads=1 zero_stage=2 gradient_sync=step", &step);
    assert_memory_equal(&once, &step, sizeof once);
}

/* Weights gathered in blocks of 8 bits: within a tolerance, the same for every form of the job that is exact otherwise; at rest as ever. */
static void gathers_in_8_bits(void **state) {
    (void)state;
    sn_model_config config = odd_llama();
    static const char *const jobs[] = {"", "recompute=all", "overlap_comm=0"};
    for (int ranks = 2; ranks <= MOST; ranks *= 2) {
        outcome exact = {0}, first = {0}, other;
        char options[160];
        snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=2 zero_stage=3");
        train(&config, ranks, options, &exact);
        for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
            snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=2 zero_stage=3 zero_gather_dtype=int8 %s", jobs[j]);
            memset(&other, 0, sizeof other);
            train(&config, ranks, options, j ? &other : &first);
            if (j && memcmp(&first, &other, sizeof first)) fail_msg("%s: other bits than without", options);
        }
        assert_true(first.loss[0] != exact.loss[0]);
        for (int i = 0; i < STEPS; i++) {
            assert_near(first.loss[i], exact.loss[i], 0.002, "loss", "int8");
            assert_near((double)first.norm[i], (double)exact.norm[i], 0.02, "norm", "int8");
        }
    }
    world w;
    uint64_t sent[2] = {0};
    int blocks[2] = {0};
    for (int int8 = 0; int8 < 2; int8++) {
        world_open(&w, &rows, &config, "cpu", 2, int8 ? "threads=1 zero_stage=3 zero_gather_dtype=int8" : "threads=1 zero_stage=3");
        for (size_t p = 0; p < w.s.job->n_persistent; p++) assert_int_equal(w.s.job->persistent[p].rest.form == SN_Q8_0, false);
        const sn_program *p = &w.plans[0]->programs[sn_job_role_index(w.s.job, SN_ROLE_TRAIN)].program;
        for (uint32_t i = 0; i < p->count; i++)
            if (!strcmp(p->instrs[i].op, "all_gather") && p->instrs[i].n_in == 1 &&
                strstr("q8_0 f32", sn_dtype_name(p->instrs[i].in[0].dtype))) {
                sent[int8] += (uint64_t)p->instrs[i].bytes;
                blocks[int8] += p->instrs[i].in[0].dtype == SN_Q8_0;
            }
        world_close(&w);
    }
    assert_true(blocks[0] == 0 && blocks[1] >= 8 && sent[1] < sent[0]);
}

/* What a rank holds falls as the stages say. */
static void bytes_fall(void **state) {
    (void)state;
    sn_model_config config = odd_llama();
    uint64_t held[4][SN_CLASS_COUNT];
    for (int stage = 0; stage < 4; stage++) {
        char options[64];
        world w;
        snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=2 zero_stage=%d", stage);
        world_open(&w, &rows, &config, "cpu", 4, options);
        memset(held[stage], 0, sizeof held[stage]);
        for (size_t p = 0; p < w.s.job->n_persistent; p++) held[stage][w.s.job->persistent[p].class_of] += w.plans[0]->persistent[p].bytes;
        world_close(&w);
    }
    assert_true(held[1][SN_CLASS_OPTIMIZER] * 2 < held[0][SN_CLASS_OPTIMIZER] &&
                held[1][SN_CLASS_GRADIENTS] == held[0][SN_CLASS_GRADIENTS]);
    assert_true(held[2][SN_CLASS_GRADIENTS] * 2 < held[0][SN_CLASS_GRADIENTS] && held[2][SN_CLASS_WEIGHTS] == held[0][SN_CLASS_WEIGHTS]);
    assert_true(held[3][SN_CLASS_WEIGHTS] * 2 < held[0][SN_CLASS_WEIGHTS] && held[3][SN_CLASS_OPTIMIZER] == held[1][SN_CLASS_OPTIMIZER]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(full),      cmocka_unit_test(forms),          cmocka_unit_test(small_states),
                                       cmocka_unit_test(adapters),  cmocka_unit_test(released),       cmocka_unit_test(in_turns),
                                       cmocka_unit_test(gpt2),      cmocka_unit_test(other_tiers),    cmocka_unit_test(matrix),
                                       cmocka_unit_test(joined),    cmocka_unit_test(one_sum_a_step), cmocka_unit_test(gathers_in_8_bits),
                                       cmocka_unit_test(bytes_fall)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
