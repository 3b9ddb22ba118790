/* Communication runs beside computing: the gather of a block's weights is issued before the first instruction of the block before, and
 * nothing in that block waits for it or for a sum of its own gradients, in every form of the job. */
#include <stdio.h>
#include <string.h>

#include "support/tiny.h"

enum { RANKS = 2, LAYERS = 4 };

typedef struct planned {
    sn_options *recipe;
    sn_job *job;
    sn_plan *plan;
} planned;

static void open_plan(planned *p, const char *options) {
    sn_model_config config = tiny_llama();
    sn_device device;
    sn_cluster cluster = {0};
    config.intermediate_size = 211; /* larger than a unit: the feed-forward weights rest in shards, the others whole */
    config.num_layers = LAYERS;
    *p = (planned){.recipe = tiny_recipe(options)};
    assert_ok(sn_device_find("cpu", 1, &device));
    cluster.addresses = device.shape.addresses;
    for (int i = 0; i < SN_MESH_AXES; i++) cluster.mesh.size[i] = 1;
    cluster.mesh.size[SN_MESH_DP] = RANKS;
    sn_training_shape shape = {.tokens = 64};
    assert_ok(sn_job_for_training(&config, NULL, &shape, p->recipe, &cluster, NULL, &p->job));
    sn_plan_request request = {.device = device.shape, .reuse = true};
    assert_ok(sn_plan_make(p->job, &request, &p->plan));
}

static void close_plan(planned *p) {
    sn_plan_free(p->plan);
    sn_job_free(p->job);
    sn_options_close(p->recipe);
}

static const sn_node *node_of(const planned *p, int program, const sn_instr *in) { return &p->job->graphs[program]->nodes[in->node]; }

/* The position of the first instruction on the compute queue of a layer and phase; false: there is none. */
static bool find_block(const planned *p, int program, int layer, int phase, uint32_t *first) {
    const sn_program *prog = &p->plan->programs[program].program;
    for (*first = 0; *first < prog->count; ++*first) {
        const sn_node *n = node_of(p, program, &prog->instrs[*first]);
        if (n->layer == layer && n->phase == phase && prog->instrs[*first].queue == SN_QUEUE_COMPUTE) return true;
    }
    return false;
}

static uint32_t computed_before(const sn_program *prog, uint32_t k) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < k; i++)
        if (prog->instrs[i].queue == SN_QUEUE_COMPUTE) n = prog->instrs[i].signal;
    return n;
}

/* Gathers of block weights in a program, and how many are issued before the block before their own without waiting for it. */
static void count_ahead(const planned *p, int program, int *gathers, int *ahead, int *serial) {
    const sn_program *prog = &p->plan->programs[program].program;
    *gathers = *ahead = *serial = 0;
    for (uint32_t k = 0; k < prog->count; k++) {
        const sn_instr *in = &prog->instrs[k];
        const sn_node *n = node_of(p, program, in);
        uint32_t first = 0, own = 0;
        if (n->op != SN_OP_all_gather || n->n_in != 1 || n->layer < 0 || n->phase == SN_PHASE_UPDATE ||
            p->job->graphs[program]->values[n->in[0].value].persistent == SN_NONE)
            continue;
        assert_int_equal(in->queue, SN_QUEUE_COMM);
        const int before = n->layer + (n->phase == SN_PHASE_BACKWARD ? 1 : -1);
        if (before < 0 || !find_block(p, program, before, n->phase, &first) || !find_block(p, program, n->layer, n->phase, &own)) continue;
        ++*gathers;
        *ahead += k < first;
        *serial += in->wait[SN_QUEUE_COMPUTE] > computed_before(prog, first);
        for (uint32_t i = first; i < own; i++)
            *serial += prog->instrs[i].queue == SN_QUEUE_COMPUTE && prog->instrs[i].wait[SN_QUEUE_COMM] >= in->signal;
    }
}

/* Of adapters whose sums are joined, a sum's scratch may lie where the next block computes, which then waits for it: docs/passes/overlap.md. */
static void issued_before_the_block_before(void **state) {
    (void)state;
    static const char *const jobs[] = {"", "recompute=all", "precision=bf16 recompute=light", "gradient_accumulation_steps=3",
                                       "lora=on keep_quantised=off recompute=all join_sums=0"};
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
        for (int n = 0; n <= 1; n++) {
            planned p;
            char options[160];
            int backward = 0;
            snprintf(options, sizeof options, "threads=1 zero_stage=3 overlap_comm=%d %s", n, jobs[j]);
            open_plan(&p, options);
            for (int k = 0; k < p.job->n_graphs; k++) {
                int gathers, ahead, serial;
                if (!sn_role_trains(p.job->graphs[k]->role)) continue;
                count_ahead(&p, k, &gathers, &ahead, &serial);
                assert_true(gathers >= (LAYERS - 1) * 3);
                backward += gathers > (LAYERS - 1) * 3;
                if (ahead != (n ? gathers : 0) || (n && serial))
                    fail_msg("%s: %d gathers, %d ahead, %d serialised", options, gathers, ahead, serial);
            }
            assert_true(backward); /* counted in both directions */
            close_plan(&p);
        }
}

/* What runs ahead is in the bill: for each block the weights of one, and the gradients of one that are still on their way. */
static void second_buffer_is_billed(void **state) {
    (void)state;
    uint64_t bytes[3];
    for (int n = 0; n < 3; n++) {
        planned p;
        char options[64];
        snprintf(options, sizeof options, "threads=1 zero_stage=3 overlap_comm=%d recompute=all", n);
        open_plan(&p, options);
        bytes[n] = p.plan->arena_bytes[SN_TIER_DEVICE];
        close_plan(&p);
    }
    const uint64_t weights = 3 * 211 * 32 * sizeof(float),
                   gradients = weights + (2 * 32 + 2 * 16) * 32 * sizeof(float) + 2 * 32 * sizeof(float);
    for (int n = 1; n < 3; n++) assert_in_range(bytes[n], bytes[n - 1] + 1, bytes[n - 1] + weights + gradients + 8192);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(issued_before_the_block_before), cmocka_unit_test(second_buffer_is_billed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
