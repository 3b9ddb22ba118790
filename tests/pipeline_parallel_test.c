/* Pipeline stages give what one rank gives that accumulates as many micro-batches: the same losses and weights to the last bit, a table
 * that both ends use aside, whose gradient is added up in another order. */
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "passes/pipeline_parallel.h"
#include "plan/cluster.h"
#include "support/world.h"

enum { MOST = 8, LENGTH = 8, ROWS = 16 };

static sn_model_config four_blocks(bool tied) {
    sn_model_config c = tiny_llama();
    c.num_layers = 4;
    c.vocab_size = 509;
    c.tie_word_embeddings = tied;
    return c;
}

static const world_rows rows = {.rows = ROWS, .length = LENGTH, .evaluate = true};

/* All ranks are compared with one another, too. */
static void plan_world(world *w, const sn_model_config *model, const char *device, int ranks, const char *options) {
    world_plan(w, &rows, model, device, ranks, options);
    sn_plan_request all = {.device = w->s.device.shape, .reuse = true};
    sn_plan *largest;
    assert_ok(sn_plan_cluster(w->s.job, &all, &largest));
    sn_plan_free(largest);
}

static void train(const sn_model_config *model, int ranks, const char *options, world_outcome *out) {
    world w;
    plan_world(&w, model, "null", ranks, options);
    world_close(&w);
    world_open(&w, &rows, model, "cpu", ranks, options);
    world_train(&w, 1e-2, options, out);
    world_keep(&w, out);
    world_close(&w);
}

/* `ranks` with `more` against as many data-parallel ranks alone; tolerance 0: the same bits. */
static void check(bool tied, int ranks, int dp, int accumulation, const char *both, const char *more, double tolerance) {
    sn_model_config config = four_blocks(tied);
    world_outcome one = {0}, stages = {0};
    char options[256];
    snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=%d %s", accumulation, both);
    train(&config, dp, options, &one);
    snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=%d %s %s", accumulation, both, more);
    train(&config, ranks, options, &stages);
    world_compare(&stages, &one, tolerance, options);
    world_forget(&one);
    world_forget(&stages);
}

static void untied(void **state) {
    (void)state;
    for (int accumulation = 1; accumulation <= 8; accumulation *= 2) {
        check(false, 2, 1, accumulation, "recompute=none", "pipeline_parallel_size=2", 0);
        check(false, 4, 1, accumulation, "recompute=light", "pipeline_parallel_size=4", 0);
    }
}

static void tied(void **state) {
    (void)state;
    for (int accumulation = 1; accumulation <= 8; accumulation *= 2) {
        check(true, 2, 1, accumulation, "recompute=none", "pipeline_parallel_size=2", 1e-5);
        check(true, 4, 1, accumulation, "recompute=light", "pipeline_parallel_size=4", 1e-5);
    }
}

static void with_data_parallel(void **state) {
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        char options[64];
        snprintf(options, sizeof options, "recompute=light zero_stage=%d", stage);
        check(false, 4, 2, 4, options, "pipeline_parallel_size=2", 0);
        check(true, 4, 2, 4, options, "pipeline_parallel_size=2", 1e-5);
        check(false, 4, 2, 1, options, "pipeline_parallel_size=2", 0);
    }
}

static void interleaved(void **state) {
    (void)state;
    check(false, 2, 1, 4, "recompute=none", "pipeline_parallel_size=2 virtual_pipeline_size=2", 0);
    check(false, 2, 1, 2, "recompute=none", "pipeline_parallel_size=2 virtual_pipeline_size=2", 0);
    check(true, 2, 1, 8, "recompute=all", "pipeline_parallel_size=2 virtual_pipeline_size=2", 1e-5);
}

static void with_others(void **state) {
    (void)state;
    check(false, 2, 1, 4, "lora=on lora_dropout=0.1", "pipeline_parallel_size=2", 0);
    check(true, 4, 2, 4, "lora=on recompute=all zero_stage=1", "pp=2", 0);
    check(false, 4, 1, 4, "recompute=all", "pipeline_parallel_size=4", 0);
    check(false, 2, 1, 4, "recompute=every:2", "pipeline_parallel_size=2", 0);
    check(false, 2, 1, 4, "precision=bf16 recompute=all", "pipeline_parallel_size=2", 0);
    check(false, 4, 2, 4, "precision=fp16 zero_stage=2", "pipeline_parallel_size=2", 0);
    check(false, 4, 1, 4, "recompute=none", "pipeline_parallel_size=4 pipeline_schedule=gpipe", 0);
    check(false, 2, 1, 4, "optimizer=adamw_8bit max_grad_norm=0.1", "pipeline_parallel_size=2", 0);
}

/* Another family, whose table of positions stands before the blocks too. */
static void gpt2(void **state) {
    (void)state;
    sn_model_config config = tiny_gpt2();
    config.num_layers = 4;
    world_outcome one = {0}, stages = {0};
    /* gradients that are zero but for rounding (of key biases) would be blown up by adamw */
    train(&config, 1, "threads=1 gradient_accumulation_steps=4 optimizer=sgd momentum=0.9", &one);
    train(&config, 4, "threads=1 gradient_accumulation_steps=4 optimizer=sgd momentum=0.9 pipeline_parallel_size=4", &stages);
    world_compare(&stages, &one, 1e-5, "gpt2");
    world_forget(&one);
    world_forget(&stages);
}

/* ---- The schedule ---- */

static void check_schedule(const sn_pipeline *p) {
    int chunks = sn_pipeline_chunks(p);
    int64_t M = p->micro_batches;
    size_t n = 2 * (size_t)M * (size_t)chunks;
    sn_pipeline_unit *units = sn_alloc(n * sizeof *units);
    bool *done[2] = {sn_alloc_zero(n, 1), sn_alloc_zero(n, 1)};
    int64_t next[64] = {0}, alive[MOST] = {0}, most[MOST] = {0};
    assert_true(units && done[0] && done[1] && chunks <= 64);
    assert_ok(sn_pipeline_schedule(p, units));
    for (size_t k = 0; k < n; k++) {
        sn_pipeline_unit u = units[k];
        int stage = u.chunk % p->stages;
        int64_t at = u.chunk * M + u.micro;
        assert_false(done[u.backward][at]);
        if (!u.backward) assert_true(u.chunk == 0 || done[0][at - M]);
        else
            assert_true(done[0][at] && (u.chunk == chunks - 1 || done[1][at + M]) &&
                        next[u.chunk]++ == u.micro); /* gradients add up in order */
        done[u.backward][at] = true;
        alive[stage] += u.backward ? -1 : 1;
        if (alive[stage] > most[stage]) most[stage] = alive[stage];
    }
    for (int s = 0; s < p->stages; s++) {
        int64_t bound = p->stages - s, all = M * p->turns;
        if (p->turns > 1) bound = 2 * (p->stages - s - 1) + (p->turns - 1) * p->stages + 1;
        if (p->gpipe || bound > all) bound = all;
        if (most[s] != bound)
            fail_msg("%d stages, %d turns, %d micro-batches: stage %d has %d alive, wanted %d", p->stages, p->turns, (int)M, s,
                     (int)most[s], (int)bound);
    }
    sn_free(units);
    sn_free(done[0]);
    sn_free(done[1]);
}

/* Parts come in the order of what they need; a stage keeps as few micro-batches alive as its schedule says. */
static void schedules(void **state) {
    (void)state;
    for (int stages = 2; stages <= MOST; stages++)
        for (int turns = 1; turns <= 4; turns++)
            for (int64_t M = 1; M <= 33; M++)
                for (int gpipe = 0; gpipe < 2; gpipe++)
                    if (turns == 1 || M % stages == 0)
                        check_schedule(&(sn_pipeline){.stages = stages, .turns = turns, .layers = 64, .micro_batches = M, .gpipe = gpipe});
}

/* ---- The plan ---- */

/* The most bytes of activations alive at once in the program that trains. */
static uint64_t activations(const sn_plan *plan) {
    uint64_t most = 0;
    for (uint32_t k = 0; k < plan->programs[0].program.count; k++) {
        uint64_t live = 0;
        for (size_t i = 0; i < plan->programs[0].n_lives; i++) {
            const sn_life *l = &plan->programs[0].lives[i];
            if (l->class_of == SN_CLASS_ACTIVATIONS && l->first <= k && k <= l->last) live += l->bytes;
        }
        if (live > most) most = live;
    }
    return most;
}

/* Eight micro-batches over four stages: stage s keeps 4 - s of them, all eight where all go forward first. */
static void activations_fall(void **state) {
    (void)state;
    sn_model_config config = four_blocks(false);
    world one, all;
    uint64_t held[2][4], single;
    plan_world(&one, &config, "null", 4, "threads=1 recompute=none gradient_accumulation_steps=8 pipeline_parallel_size=4");
    plan_world(&all, &config, "null", 4,
               "threads=1 recompute=none gradient_accumulation_steps=8 pipeline_parallel_size=4 pipeline_schedule=gpipe");
    for (int s = 0; s < 4; s++) {
        held[0][s] = activations(one.plans[s]);
        held[1][s] = activations(all.plans[s]);
    }
    world_close(&one);
    world_close(&all);
    plan_world(&one, &config, "null", 1, "threads=1 recompute=none gradient_accumulation_steps=8");
    single = activations(one.plans[0]) / 4; /* of one block */
    world_close(&one);
    for (int s = 0; s < 3; s++) { /* the last one has the head's too */
        double blocks = (double)held[0][s] / (double)single, flushed = (double)held[1][s] / (double)single;
        if (blocks > 4 - s + 0.8 || blocks < 4 - s - 0.5 || flushed < 7)
            fail_msg("stage %d keeps %.2f micro-batches, %.2f when all go first", s, blocks, flushed);
    }
}

/* What a stage holds is its blocks', and the ends' tables. */
static void bytes_fall(void **state) {
    (void)state;
    sn_model_config config = four_blocks(true);
    world one, four;
    plan_world(&one, &config, "null", 1, "threads=1 gradient_accumulation_steps=4");
    plan_world(&four, &config, "null", 4, "threads=1 gradient_accumulation_steps=4 pipeline_parallel_size=4");
    const sn_job *job = four.s.job;
    for (int s = 0; s < 4; s++)
        for (size_t p = 0; p < job->n_persistent; p++) {
            const sn_persistent *e = &job->persistent[p];
            bool table = !strncmp(e->name, "model.embed_tokens", 18), norm = !strncmp(e->name, "model.norm", 10);
            bool here = table ? s == 0 || s == 3 : norm || !strcmp(e->name, "loss") ? s == 3 : e->layer < 0 || e->layer == s;
            if (sn_job_find(one.s.job, e->name) == SN_NONE || (four.plans[s]->persistent[p].count > 0) != here)
                fail_msg("%s at stage %d: %d elements", e->name, s, (int)four.plans[s]->persistent[p].count);
        }
    int forward = 0;
    const sn_program *program = &four.plans[1]->programs[0].program;
    for (uint32_t k = 0; k < program->count; k++)
        forward += !strcmp(program->instrs[k].op, "attention") && !strcmp(program->instrs[k].made_by, "model");
    assert_int_equal(forward, 4); /* of its own block alone */
    world_close(&one);
    world_close(&four);
}

static sn_instr *sent(const sn_plan *plan, int number) {
    const sn_program *p = &plan->programs[0].program;
    for (uint32_t k = 0; k < p->count; k++)
        if (p->instrs[k].queue == SN_QUEUE_COMM && p->instrs[k].pair && !number--) return &p->instrs[k];
    fail_msg("too few sends");
    return NULL;
}

/* Two stages that do not come to the same send, or not with the same bytes, are found before anything runs. */
static void a_wrong_order_is_found(void **state) {
    (void)state;
    sn_model_config config = four_blocks(false);
    world w;
    plan_world(&w, &config, "null", 2, "threads=1 gradient_accumulation_steps=4 pipeline_parallel_size=2");
    assert_ok(sn_plan_compare_collectives(w.plans[0], w.plans[1]));
    sn_instr *a = sent(w.plans[1], 2), *b = sent(w.plans[1], 1), kept = *a;
    assert_true(a->from != b->from); /* one forward, one backward */
    *a = *b;
    *b = kept;
    assert_int_equal(sn_plan_compare_collectives(w.plans[0], w.plans[1]), SN_ERR_PLAN);
    if (!strstr(sn_error_text(), "ranks 0 and 1 would wait for each other for ever in program step") ||
        !strstr(sn_error_text(), "send_recv"))
        fail_msg("'%s'", sn_error_text());
    kept = *a;
    *a = *b;
    *b = kept;
    assert_ok(sn_plan_compare_collectives(w.plans[0], w.plans[1]));
    sn_arg *x = a->in[0].arena == SN_NO_ARENA ? &a->out[0] : &a->in[0];
    x->shape.d[0]++;
    assert_int_equal(sn_plan_compare_collectives(w.plans[0], w.plans[1]), SN_ERR_PLAN);
    x->shape.d[0]--;
    world_close(&w);
}

/* Seconds of a step on this many stages; *least: every stage once, one behind the other, and on the slowest all other micro-batches. */
static double span_of(int stages, const char *options, int micro_batches, double *least) {
    sn_model_config config = four_blocks(false);
    const sn_rates rates = {.f32_flops = 1e9, .bytes_per_s = 1e12, .ring = 1e15};
    world w;
    double sum = 0, slowest = 0;
    world_plan(&w, &rows, &config, "null", stages, options);
    for (int r = 0; r < stages; r++) {
        sn_program_time t;
        assert_ok(sn_program_estimate(&w.plans[r]->programs[sn_job_role_index(w.s.job, SN_ROLE_TRAIN)].program, &rates, &w.s.job->mesh,
                                      NULL, &t));
        sum += t.compute / micro_batches;
        if (t.compute / micro_batches > slowest) slowest = t.compute / micro_batches;
    }
    *least = sum + (micro_batches - 1) * slowest;
    sn_plan_request all = {.device = w.s.device.shape, .rates = &rates, .reuse = true};
    sn_plan *largest;
    assert_ok(sn_plan_cluster(w.s.job, &all, &largest));
    double span = largest->programs[sn_job_role_index(w.s.job, SN_ROLE_TRAIN)].span;
    sn_plan_free(largest);
    world_close(&w);
    return span;
}

/* The estimate of a step has the time in which stages wait for one another, which no stage's own plan has. */
static void stages_wait(void **state) {
    (void)state;
    double least, few, many;
    few = span_of(4, "pipeline_parallel_size=4 gradient_accumulation_steps=4", 4, &least);
    if (few < 0.98 * least || few > 1.2 * least) fail_msg("4 micro-batches: %g s, at least %g", few, least);
    many = span_of(4, "pipeline_parallel_size=4 gradient_accumulation_steps=16", 16, &least);
    if (many < 0.98 * least || many > 1.2 * least) fail_msg("16 micro-batches: %g s, at least %g", many, least);
    if (!(many < 3.9 * few)) fail_msg("filling and draining 4 stages costs nothing: %g s, %g s of 4 times as many", few, many);
    few = span_of(2, "pipeline_parallel_size=2 gradient_accumulation_steps=4", 4, &least);
    many = span_of(2, "pipeline_parallel_size=2 virtual_pipeline_size=2 gradient_accumulation_steps=4", 4, &least);
    if (!(many < few)) fail_msg("interleaved runs of blocks do not wait less: %g s, %g s", few, many);
}

static void refused(const char *options, int ranks, const char *word) {
    sn_model_config config = four_blocks(false);
    sn_session s = {.ranks = ranks};
    sn_options *recipe = tiny_recipe(options);
    sn_training_shape shape = {.tokens = 16};
    assert_ok(sn_device_find("null", 1, &s.device));
    sn_status status = sn_session_mesh(&s, recipe);
    if (status == SN_OK) status = sn_job_for_training(&config, NULL, &shape, recipe, &s.cluster, NULL, &s.job);
    if (status == SN_OK || !strstr(sn_error_text(), word)) fail_msg("%s: '%s' lacks '%s'", options, sn_error_text(), word);
    sn_options_close(recipe);
}

static void refusals(void **state) {
    (void)state;
    refused("pipeline_parallel_size=8", 8, "4 blocks are too few");
    refused("pipeline_parallel_size=2 virtual_pipeline_size=4 gradient_accumulation_steps=2", 2, "4 blocks are too few for 8 runs");
    refused("pipeline_parallel_size=2 virtual_pipeline_size=2 gradient_accumulation_steps=3", 2, "groups of 2");
    refused("pipeline_parallel_size=3", 4, "pipeline_parallel_size is 3, which does not divide 4 ranks");
    refused("virtual_pipeline_size=2", 1, "needs pipeline_parallel_size");
    refused("pipeline_parallel_size=4 recompute=every:3 gradient_accumulation_steps=4", 4, "has to lie on one stage");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(schedules),   cmocka_unit_test(untied),
                                       cmocka_unit_test(tied),        cmocka_unit_test(with_data_parallel),
                                       cmocka_unit_test(interleaved), cmocka_unit_test(with_others),
                                       cmocka_unit_test(gpt2),        cmocka_unit_test(activations_fall),
                                       cmocka_unit_test(bytes_fall),  cmocka_unit_test(a_wrong_order_is_found),
                                       cmocka_unit_test(stages_wait), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
