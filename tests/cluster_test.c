/* Every rank planned in one process: all make the same collectives in the same order with the same sizes, so that none can
 * wait for another for ever. */
#include <stdio.h>
#include <string.h>

#include "support/tiny.h"

static const char *const recipes[] = {"seed=1", "recompute=all gradient_accumulation_steps=2", "lora=on",
                                      "precision=bf16 recompute=attention"};

static sn_plan *plan_rank(const tiny *t, int rank) {
    sn_plan *plan;
    sn_plan_request request = {.device = t->device.shape, .rank = rank, .reuse = true};
    assert_ok(sn_plan_make(t->job, &request, &plan));
    return plan;
}

static bool same_argument(const sn_arg *a, const sn_arg *b) {
    return a->arena == b->arena && a->dtype == b->dtype && (a->arena == SN_NO_ARENA || sn_shape_equal(&a->shape, &b->shape));
}

/* The side of a collective that every rank has alike; on the other one ranks hold as much as there is for them. */
static const sn_arg *whole_side(const sn_instr *in) {
    if (!strcmp(in->op, "reduce_scatter")) return &in->in[0];
    return in->n_in > 1 ? &in->in[1] : &in->out[0];
}

static bool same_collective(const sn_instr *a, const sn_instr *b) {
    return !strcmp(a->op, b->op) && a->n_in == b->n_in && a->n_out == b->n_out && !memcmp(&a->attrs, &b->attrs, sizeof a->attrs) &&
           same_argument(whole_side(a), whole_side(b));
}

/* The next instruction of the comm queue at or after k. */
static uint32_t next_collective(const sn_program *p, uint32_t k) {
    while (k < p->count && p->instrs[k].queue != SN_QUEUE_COMM) k++;
    return k;
}

/* Compares program p of a rank with rank 0's; returns how many collectives there are. */
static int compare_programs(const sn_program *p, const sn_program *q) {
    int count = 0;
    for (uint32_t i = next_collective(p, 0), j = next_collective(q, 0); i < p->count || j < q->count;
         i = next_collective(p, i + 1), j = next_collective(q, j + 1)) {
        if (i >= p->count || j >= q->count) fail_msg("%s: one rank has more collectives", p->name);
        if (!same_collective(&p->instrs[i], &q->instrs[j]))
            fail_msg("%s: collective %d differs: %s and %s", p->name, count, p->instrs[i].name, q->instrs[j].name);
        count++;
    }
    return count;
}

static void open_cluster(tiny *t, const sn_model_config *config, const char *options, int ranks) {
    *t = (tiny){.config = *config, .recipe = tiny_recipe(options)};
    assert_ok(sn_device_find("null", 1, &t->device));
    t->cluster.addresses = t->device.shape.addresses;
    for (int i = 0; i < SN_MESH_AXES; i++) t->cluster.mesh.size[i] = 1;
    t->cluster.mesh.size[SN_MESH_DP] = ranks;
    sn_training_shape shape = {.tokens = 16 * ranks, .evaluate = true};
    assert_ok(sn_job_for_training(config, NULL, &shape, t->recipe, &t->cluster, NULL, &t->job));
}

static int gradients(const sn_job *job) {
    int n = 0;
    for (size_t p = 0; p < job->n_persistent; p++) n += job->persistent[p].class_of == SN_CLASS_GRADIENTS;
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
                    for (int k = 0; k < plan->n_programs; k++) {
                        int n = compare_programs(&plan->programs[k].program, &first->programs[k].program);
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

/* The comparison sees what it is for. */
static void a_difference_is_seen(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    tiny t;
    open_cluster(&t, &config, "seed=1", 2);
    sn_plan *a = plan_rank(&t, 0), *b = plan_rank(&t, 1);
    const sn_program *p = &a->programs[0].program, *q = &b->programs[0].program;
    uint32_t i = next_collective(p, 0), j = next_collective(p, i + 1);
    assert_true(same_collective(&p->instrs[i], &q->instrs[i]));
    assert_false(same_collective(&p->instrs[i], &q->instrs[j]));
    sn_instr other = q->instrs[i];
    other.in[0].shape.d[0]++;
    assert_false(same_collective(&p->instrs[i], &other));
    sn_plan_free(a);
    sn_plan_free(b);
    sn_job_free(t.job);
    sn_options_close(t.recipe);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_agree), cmocka_unit_test(a_difference_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
