/* Every rank planned in one process: all make the same collectives in the same order with the same sizes, so that none can
 * wait for another for ever. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/system.h"
#include "engine/budget.h"
#include "engine/train.h"
#include "plan/cluster.h"
#include "support/tiny.h"

static const char *const recipes[] = {"seed=1", "recompute=all gradient_accumulation_steps=2", "lora=on",
                                      "precision=bf16 recompute=attention"};

static sn_plan *plan_rank(const tiny *t, int rank) {
    sn_plan *plan;
    sn_plan_request request = {.device = t->device.shape, .rank = rank, .reuse = true};
    assert_ok(sn_plan_make(t->job, &request, &plan));
    return plan;
}

static int collectives(const sn_program *p) {
    int n = 0;
    for (uint32_t k = 0; k < p->count; k++) n += p->instrs[k].queue == SN_QUEUE_COMM;
    return n;
}

static void open_cluster(tiny *t, const sn_model_config *config, const char *options, int ranks) {
    *t = (tiny){.config = *config, .recipe = tiny_recipe(options)};
    assert_ok(sn_device_find("null", 1, &t->device));
    t->cluster.addresses = t->device.shape.addresses;
    t->cluster.mesh = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = ranks}});
    sn_training_shape shape = {.tokens = 16 * ranks, .evaluate = true};
    assert_ok(sn_job_for_training(config, NULL, &shape, t->recipe, &t->cluster, NULL, &t->job));
}

static int gradients(const sn_job *job) {
    int n = 0;
    for (size_t p = 0; p < job->n_persistent; p++) n += job->persistent[p].class_of == SN_CLASS_GRADIENTS;
    return n;
}

/* Collectives, each with which several gradients are summed counted as the two that each of them would take. */
static int moved(const sn_program *p) {
    int n = 0;
    for (uint32_t i = 0; i < p->count; i++)
        n += p->instrs[i].queue != SN_QUEUE_COMM ? 0 : !strcmp(p->instrs[i].op, "all_reduce") ? p->instrs[i].n_in : 1;
    return n;
}

static void ranks_agree(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, 4};
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++)
        for (int family = 0; family < 2; family++)
            for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
                sn_model_config config = family ? tiny_gpt2() : tiny_llama();
                tiny t;
                open_cluster(&t, &config, recipes[r], worlds[w]);
                sn_plan *first = plan_rank(&t, 0);
                for (int rank = 0; rank < worlds[w]; rank++) {
                    sn_plan *plan = plan_rank(&t, rank);
                    assert_int_equal(plan->rank, rank);
                    assert_int_equal(plan->n_programs, first->n_programs);
                    assert_ok(sn_plan_compare_collectives(first, plan));
                    for (int k = 0; k < plan->n_programs; k++) {
                        int n = moved(&plan->programs[k].program);
                        bool trains = sn_role_trains(plan->programs[k].role);
                        if (worlds[w] == 1 || !trains) assert_int_equal(n, 0);
                        else if (n < 2 * gradients(t.job))
                            fail_msg("%s, %d ranks: %d collectives for %d gradients", recipes[r], worlds[w], n, gradients(t.job));
                    }
                    sn_plan_free(plan);
                }
                sn_plan_free(first);
                sn_job_free(t.job);
                sn_options_close(t.recipe);
            }
}

static void close_cluster(tiny *t) {
    sn_job_free(t->job);
    sn_options_close(t->recipe);
}

static sn_instr *collective(const sn_plan *plan, int number) {
    const sn_program *p = &plan->programs[0].program;
    for (uint32_t k = 0; k < p->count; k++)
        if (p->instrs[k].queue == SN_QUEUE_COMM && !number--) return &p->instrs[k];
    fail_msg("program %s has too few collectives", p->name);
    return NULL;
}

static void refused(const sn_plan *a, const sn_plan *b, const char *word) {
    assert_int_equal(sn_plan_compare_collectives(a, b), SN_ERR_PLAN);
    if (!strstr(sn_error_text(), word) || !strstr(sn_error_text(), "ranks 0 and 1") || !strstr(sn_error_text(), "program step"))
        fail_msg("'%s' lacks %s, or the ranks, or the program", sn_error_text(), word);
}

/* The comparison sees an order, a size, a form and a number that differ. */
static void a_difference_is_seen(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    tiny t;
    open_cluster(&t, &config, "seed=1", 2);
    sn_plan *a = plan_rank(&t, 0), *b = plan_rank(&t, 1);
    assert_ok(sn_plan_compare_collectives(a, b));
    sn_instr *one = collective(b, 0), *other = collective(b, 1), kept = *one, next = *other;
    *one = next;
    *other = kept;
    refused(a, b, "collective 0");
    *one = kept;
    *other = next;
    assert_ok(sn_plan_compare_collectives(a, b));
    one = collective(b, 2);
    sn_arg *whole = !strcmp(one->op, "reduce_scatter") ? &one->in[0] : one->n_in > 1 ? &one->in[1] : &one->out[0];
    whole->shape.d[0]++;
    refused(a, b, "collective 2");
    whole->shape.d[0]--;
    sn_dtype form = whole->dtype;
    whole->dtype = SN_BF16;
    refused(a, b, "bf16");
    whole->dtype = form;
    one->attrs.i[1]++;
    refused(a, b, one->op);
    one->attrs.i[1]--;
    one->queue = SN_QUEUE_COMPUTE;
    refused(a, b, one->name);
    one->queue = SN_QUEUE_COMM;
    one = collective(b, collectives(&b->programs[0].program) - 1);
    one->queue = SN_QUEUE_COMPUTE;
    refused(a, b, "none on rank 1");
    one->queue = SN_QUEUE_COMM;
    assert_ok(sn_plan_compare_collectives(a, b));
    sn_plan_free(a);
    sn_plan_free(b);
    close_cluster(&t);
}

static bool same_sizes(const sn_plan *a, const sn_plan *b) {
    if (a->bill.total != b->bill.total || memcmp(a->bill.by_class, b->bill.by_class, sizeof a->bill.by_class)) return false;
    for (size_t p = 0; p < a->n_persistent; p++)
        if (a->persistent[p].count != b->persistent[p].count || a->persistent[p].offset != b->persistent[p].offset) return false;
    for (int k = 0; k < a->n_programs; k++) {
        const sn_program *p = &a->programs[k].program, *q = &b->programs[k].program;
        for (uint32_t i = 0; i < p->n_args; i++)
            if (!sn_shape_equal(&p->args[i].shape, &q->args[i].shape)) return false;
    }
    return true;
}

/* A rank is like the lowest of its class in every size, unlike the class before; the largest of the classes is the largest of all. */
static void ranks_of_a_class_are_alike(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, 5, 7, 16};
    for (int stage = 0; stage < 4; stage++)
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
            sn_model_config config = tiny_llama();
            config.vocab_size = 2003; /* 16 units of 4096, the last not full */
            config.intermediate_size = 521;
            tiny t;
            char options[64];
            snprintf(options, sizeof options, "zero_stage=%d gradient_accumulation_steps=2", stage);
            open_cluster(&t, &config, options, worlds[w]);
            int *first, class_of = 0;
            size_t n;
            uint64_t most = 0;
            int largest = 0;
            assert_ok(sn_plan_rank_classes(t.job, &first, &n));
            assert_true(n >= 1 && first[0] == 0 && (stage || n == 1 || worlds[w] > 1));
            sn_plan *like = plan_rank(&t, 0);
            for (int rank = 0; rank < worlds[w]; rank++) {
                sn_plan *plan = plan_rank(&t, rank);
                if (class_of + 1 < (int)n && first[class_of + 1] == rank) {
                    assert_false(same_sizes(plan, like));
                    sn_plan_free(like);
                    like = plan_rank(&t, rank);
                    class_of++;
                }
                if (!same_sizes(plan, like))
                    fail_msg("stage %d, %d ranks: rank %d is not like rank %d", stage, worlds[w], rank, first[class_of]);
                if (plan->bill.total > most) {
                    most = plan->bill.total;
                    largest = rank;
                }
                sn_plan_free(plan);
            }
            assert_int_equal(class_of, (int)n - 1);
            sn_plan *cluster;
            sn_plan_request request = {.device = t.device.shape, .reuse = true};
            assert_ok(sn_plan_cluster(t.job, &request, &cluster));
            assert_true(cluster->bill.total == most && cluster->rank == largest);
            assert_int_equal(cluster->ranks, worlds[w]);
            assert_int_equal(cluster->ranks_planned, (int)n);
            sn_plan_free(cluster);
            sn_plan_free(like);
            sn_free(first);
            close_cluster(&t);
        }
}

static void plan_shape(const char *model, const char *options, sn_model *m, sn_options **recipe, sn_session *s) {
    assert_ok(sn_model_open(model, m));
    *recipe = tiny_recipe(options);
    assert_ok(sn_train_plan(m, *recipe, NULL, NULL, s));
}

/* Rajbhandari et al. 2019, Figure 1: 7.5e9 parameters on 64 ranks, 2 + 2 + 12 bytes each. */
static void the_papers_row(void **state) {
    (void)state;
    static const double gigabytes[] = {120, 31.4, 16.6, 1.9};
    for (int stage = 0; stage < 4; stage++) {
        sn_model m;
        sn_options *recipe;
        sn_session s;
        char options[96];
        snprintf(options, sizeof options, "full=true precision=bf16 ranks=64 zero_stage=%d threads=1", stage);
        plan_shape("zero-7.5b", options, &m, &recipe, &s);
        double parameters = 0;
        for (size_t p = 0; p < s.job->n_persistent; p++) {
            const sn_persistent *e = &s.job->persistent[p];
            int64_t n;
            if (e->class_of == SN_CLASS_WEIGHTS && sn_shape_elements(&e->shape, &n)) parameters += (double)n;
        }
        assert_true(fabs(parameters / 7.5e9 - 1) < 0.01);
        const uint64_t *rest = s.plan->bill.at_rest;
        double held = (double)(rest[SN_CLASS_WEIGHTS] + rest[SN_CLASS_GRADIENTS] + rest[SN_CLASS_OPTIMIZER]) / 1e9;
        if (fabs(held / gigabytes[stage] - 1) > 0.02) fail_msg("stage %d: %g GB, the paper has %g", stage, held, gigabytes[stage]);
        assert_int_equal(s.plan->ranks, 64);
        sn_session_close(&s);
        sn_options_close(recipe);
        sn_model_close(&m);
    }
}

/* 70 billion parameters on 1,024 ranks, in seconds; what cannot be is refused. */
static void a_large_cluster(void **state) {
    (void)state;
    sn_model m;
    sn_options *recipe;
    sn_session s;
    double start = sn_now();
    plan_shape("llama-3-70b", "precision=bf16 ranks=1024 nodes=128 zero_stage=3 recompute=all device_shape=h100-80g", &m, &recipe, &s);
    assert_true(sn_now() - start < 30); /* under a second on an idle machine */
    assert_true(s.plan->ranks == 1024 && s.plan->ranks_planned > 1 && s.plan->ranks_planned < 16);
    assert_true(sn_budget_bytes(recipe, 1) == 81559ull << 20);
    sn_rates rates;
    sn_forecast f;
    bool measured;
    assert_ok(sn_train_rates(&s, recipe, &rates, &measured));
    assert_true(measured);
    assert_true(sn_ring_rate(&rates, &s.plan->mesh, SN_MESH_DP) == 400e9); /* between nodes the network is slower than NVLink */
    sn_train_forecast(&s, recipe, &rates, &f);
    double blocks = 80 * (2 * 8192. * 8192 + 2 * 8192. * 1024 + 3 * 8192. * 28672), head = 8192. * 128256;
    double least = (8 * blocks + 6 * head) * 512 / 989.4e12; /* recomputation of blocks: a second forward */
    assert_true(f.compute_seconds > least && f.compute_seconds < 1.5 * least);
    double weights = 70.55e9 * 2 / 400e9; /* gathered at least twice, gradients scattered once */
    assert_true(f.communication_seconds > 2.9 * weights && f.communication_seconds < 4.2 * weights);
    assert_true(fabs(f.tokens_per_s * f.step_seconds - 512) < 1);
    sn_session_close(&s);
    sn_options_close(recipe);
    static const char *const wrong[] = {"ranks=64 nodes=7", "ranks=4 thread_ranks=2"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        recipe = tiny_recipe(wrong[i]);
        assert_int_equal(sn_train_plan(&m, recipe, NULL, NULL, &s), SN_ERR_USAGE);
        sn_options_close(recipe);
    }
    recipe = tiny_recipe("ranks=4");
    sn_train_summary summary;
    assert_int_equal(sn_train(&m, recipe, "none.jsonl", "/nonexistent/out", NULL, &summary), SN_ERR_USAGE);
    assert_non_null(strstr(sn_error_text(), "ranks"));
    sn_options_close(recipe);
    sn_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_agree), cmocka_unit_test(a_difference_is_seen),
                                       cmocka_unit_test(ranks_of_a_class_are_alike), cmocka_unit_test(the_papers_row),
                                       cmocka_unit_test(a_large_cluster)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
