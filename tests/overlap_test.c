/* Communication runs beside computing: the gather of a block's weights is issued before the first instruction of the block before, and
 * nothing in that block waits for it, nor for a sum of its own gradients, in every form of the job and on every rank. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "plan/courses.h"
#include "support/world.h"

enum { RANKS = 2, LAYERS = 4, BLOCKS_MOST = 256 };

static const world_rows rows = {.rows = 24, .length = 8}, processes = {.rows = 24, .length = 8, .processes = true};

static void plan_ranks(world *w, const world_rows *of, int ranks, const char *options) {
    sn_model_config config = tiny_llama();
    config.intermediate_size = 211; /* larger than a unit: the feed-forward weights rest in shards, the others whole */
    config.num_layers = LAYERS;
    world_plan(w, of, &config, "cpu", ranks, options);
}

/* ---- A rank's program, in blocks ---- */

/* A run of instructions on the compute queue of one layer and phase. */
typedef struct block {
    uint32_t first;
    int32_t layer;
    int phase;
} block;

typedef struct blocks {
    const sn_graph *g;
    const sn_program *program;
    block at[BLOCKS_MOST];
    int n;
} blocks;

static const sn_node *node_of(const blocks *b, uint32_t k) { return &b->g->nodes[b->program->instrs[k].node]; }

static bool writes_gradient(const sn_graph *g, const sn_node *n) {
    const bool moves = n->op == SN_OP_accumulate || n->op == SN_OP_copy || n->op == SN_OP_cast;
    const sn_vid v = n->op == SN_OP_accumulate ? n->in[0].value : n->out[0];
    return moves && v != SN_NONE && g->values[v].persistent != SN_NONE && g->values[v].class_of == SN_CLASS_GRADIENTS;
}

/* What takes a sum stands in the block behind, what the update does with a gradient that is complete, too. */
static void find_blocks(blocks *b) {
    uint32_t backward = 0;
    b->n = 0;
    for (uint32_t k = 0; k < b->program->count; k++)
        if (node_of(b, k)->phase == SN_PHASE_BACKWARD) backward = k;
    for (uint32_t k = 0; k < b->program->count; k++) {
        const sn_node *n = node_of(b, k);
        if (b->program->instrs[k].queue != SN_QUEUE_COMPUTE || writes_gradient(b->g, n)) continue;
        if (n->phase == SN_PHASE_UPDATE && k < backward) continue;
        if (b->n && b->at[b->n - 1].layer == n->layer && b->at[b->n - 1].phase == n->phase) continue;
        assert_true(b->n < BLOCKS_MOST);
        b->at[b->n++] = (block){k, n->layer, n->phase};
    }
}

static int block_of(const blocks *b, uint32_t k) {
    int at = b->n - 1;
    while (at > 0 && b->at[at].first > k) at--;
    return at;
}

static uint32_t begin_of(const blocks *b, int at) { return at < b->n ? b->at[at].first : b->program->count; }

static uint32_t computed_before(const sn_program *p, uint32_t k) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < k; i++)
        if (p->instrs[i].queue == SN_QUEUE_COMPUTE) n = p->instrs[i].signal;
    return n;
}

/* Instructions of the compute queue in first .. end - 1 that wait for one of the communication queue. */
static int waits(const sn_program *p, uint32_t first, uint32_t end, const sn_instr *in) {
    int n = 0;
    for (uint32_t k = first; k < end; k++) n += p->instrs[k].queue == SN_QUEUE_COMPUTE && p->instrs[k].wait[SN_QUEUE_COMM] >= in->signal;
    return n;
}

/* The first instruction of the compute queue that reads what `at` makes; count: none does. */
static uint32_t reader(const sn_program *p, uint32_t at) {
    for (uint32_t k = at + 1; k < p->count; k++)
        for (int i = 0; p->instrs[k].queue == SN_QUEUE_COMPUTE && i < p->instrs[k].n_in; i++)
            if (p->instrs[k].in[i].value == p->instrs[at].out[0].value) return k;
    return p->count;
}

/* ---- What overlaps ---- */

typedef struct counts {
    int gathers, backward, ahead, serial; /* of blocks' weights; in backward; before the block before; waited for in that */
    int sums, waited;                     /* of blocks' gradients; waited for in their own block, or reuse bytes in it */
} counts;

static void count(const blocks *b, counts *c) {
    const sn_program *p = b->program;
    for (uint32_t k = 0; k < p->count; k++) {
        const sn_instr *in = &p->instrs[k];
        const sn_node *n = node_of(b, k);
        if (in->queue != SN_QUEUE_COMM || n->layer < 0 || n->phase == SN_PHASE_UPDATE || in->axis != SN_MESH_DP) continue;
        if (n->op == SN_OP_all_gather && n->n_in == 1 && b->g->values[n->in[0].value].persistent != SN_NONE) {
            const uint32_t user = reader(p, k);
            const int home = block_of(b, user);
            if (!home) continue;
            const uint32_t first = begin_of(b, home - 1);
            c->gathers++;
            c->backward += n->phase == SN_PHASE_BACKWARD;
            c->ahead += k < first;
            c->serial += waits(p, first, begin_of(b, home), in) || in->wait[SN_QUEUE_COMPUTE] > computed_before(p, first);
        } else if ((n->op == SN_OP_reduce_scatter || n->op == SN_OP_all_reduce) && n->phase == SN_PHASE_BACKWARD) {
            const int home = block_of(b, k);
            c->sums++;
            c->waited += waits(p, k, begin_of(b, home + 1), in) != 0;
        }
    }
}

static counts count_rank(const world *w, int rank) {
    counts c = {0};
    for (int k = 0; k < w->s.job->n_graphs; k++) {
        blocks b = {.g = w->s.job->graphs[k], .program = &w->plans[rank]->programs[k].program};
        if (!sn_role_trains(b.g->role)) continue;
        find_blocks(&b);
        count(&b, &c);
    }
    return c;
}

/* Without the pass nothing is ahead, with it everything is. */
static void check_ranks(const world_rows *of, int ranks, const char *options) {
    for (int n = 0; n <= 1; n++) {
        world w;
        char text[200];
        snprintf(text, sizeof text, "threads=1 zero_stage=3 overlap_comm=%d %s", n, options);
        plan_ranks(&w, of, ranks, text);
        for (int r = 0; r < ranks; r++) {
            const counts c = count_rank(&w, r);
            assert_true(c.gathers >= 6 * LAYERS && c.backward >= 3 * LAYERS && c.sums >= LAYERS);
            if (n ? c.ahead != c.gathers || c.serial || c.waited : c.ahead || !c.serial || !c.waited)
                fail_msg("%s%s: rank %d: %d gathers, %d ahead, %d waited for; %d sums, %d waited for", text,
                         of->processes ? ", processes" : "", r, c.gathers, c.ahead, c.serial, c.sums, c.waited);
        }
        world_close(&w);
    }
}

static void issued_before_the_block_before(void **state) {
    (void)state;
    static const char *const jobs[] = {"", "recompute=all", "precision=bf16 recompute=light", "gradient_accumulation_steps=3",
                                       "lora=on keep_quantised=off recompute=all"};
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
        for (int p = 0; p < 2; p++) check_ranks(p ? &processes : &rows, RANKS, jobs[j]);
}

/* The scratch of the collective that has most. */
static uint64_t most_scratch(const sn_program *p) {
    uint64_t most = 0;
    for (uint32_t k = 0; k < p->count; k++)
        if (p->instrs[k].queue == SN_QUEUE_COMM && p->instrs[k].scratch_bytes > most) most = p->instrs[k].scratch_bytes;
    return most;
}

/* What runs ahead is in the bill: for each block the weights of one, and the gradients of one that are still on their way; of all sums the
 * scratch of one. */
static void second_buffer_is_billed(void **state) {
    (void)state;
    uint64_t bytes[3], scratch = 0;
    for (int n = 0; n < 3; n++) {
        world w;
        char options[64];
        snprintf(options, sizeof options, "threads=1 zero_stage=3 overlap_comm=%d recompute=all", n);
        plan_ranks(&w, &rows, RANKS, options);
        bytes[n] = w.plans[0]->arena_bytes[SN_TIER_DEVICE];
        scratch = most_scratch(&w.plans[0]->programs[0].program);
        world_close(&w);
    }
    const uint64_t weights = 3 * 211 * 32 * sizeof(float),
                   gradients = weights + (2 * 32 + 2 * 16) * 32 * sizeof(float) + 2 * 32 * sizeof(float);
    assert_true(scratch > 0);
    for (int n = 1; n < 3; n++)
        assert_in_range(bytes[n], bytes[n - 1] + 1, bytes[n - 1] + weights + gradients + (n == 1 ? scratch : 0) + 8192);
}

/* ---- By the rules of the queues, without a clock ---- */

typedef struct times {
    double step, compute, communication; /* seconds; of the rank that computes, or communicates, longest */
} times;

/* A step where each collective takes so long. */
static times follow(const world *w, double latency) {
    const sn_rates rates = {.f32_flops = 1e9, .bf16_flops = 1e9, .bytes_per_s = 1e9, .ring = 1e15, .latency = latency};
    sn_course courses[WORLD_MOST] = {{0}};
    times sum = {0};
    for (int r = 0; r < w->ranks; r++) assert_ok(sn_course_of(w->plans[r], &rates, &courses[r]));
    assert_ok(sn_courses_follow(&w->s.job->mesh, courses, (size_t)w->ranks));
    for (int k = 0; k < w->s.job->n_graphs; k++) {
        const sn_role role = w->s.job->graphs[k]->role;
        times most = {0};
        if (role != SN_ROLE_TRAIN && role != SN_ROLE_UPDATE) continue;
        for (int r = 0; r < w->ranks; r++) {
            sn_program_time t;
            assert_ok(sn_program_estimate(&w->plans[r]->programs[k].program, &rates, &w->s.job->mesh, NULL, &t));
            most.compute = fmax(most.compute, t.compute);
            most.communication = fmax(most.communication, t.communication);
        }
        sum.step += sn_courses_span(courses, (size_t)w->ranks, k);
        sum.compute += most.compute;
        sum.communication += most.communication;
    }
    for (int r = 0; r < w->ranks; r++) sn_course_free(&courses[r]);
    return sum;
}

/* A step of `part` times as much communication as computing, over the larger of that and a step without delay. */
static double ratio(const world *w, double part, double *idle) {
    const times one = follow(w, 1), none = follow(w, 0), t = follow(w, part * none.compute / one.communication);
    *idle = none.step / none.compute;
    return t.step / fmax(none.step, t.communication);
}

/* What is left: nothing is computed beside the update's gathers, forward has no sums, the ends of a program have nothing before or behind.
 */
static void hidden_by_computing(void **state) {
    (void)state;
    static const struct {
        const char *options;
        int ranks;
        double part, most, idle;
    } jobs[] = {
        {"zero_stage=0", 2, 0.5, 1.08, 1.01},
        {"zero_stage=1", 2, 0.25, 1.1, 1.01},
        {"zero_stage=2", 2, 0.25, 1.12, 1.01},
        {"zero_stage=3", 2, 0.5, 1.08, 1.01},
        {"zero_stage=3", 2, 1, 1.2, 1.01},
        {"zero_stage=3 recompute=all", 2, 1, 1.15, 1.01},
        {"zero_stage=3 recompute=all precision=bf16", 2, 1, 1.15, 1.01},
        {"lora=on keep_quantised=off", 2, 0.5, 1.08, 1.01},
        {"lora=on keep_quantised=off zero_stage=3", 2, 1, 1.2, 1.01},
        /* A pipeline of 2 with 4 or 8 micro-batches waits 1/4 or 1/8 of the time. */
        {"zero_stage=1 pipeline_parallel_size=2 gradient_accumulation_steps=4", 4, 0.5, 1.12, 1.28},
        {"zero_stage=3 pipeline_parallel_size=2 gradient_accumulation_steps=4", 4, 0.5, 1.12, 1.28},
        {"zero_stage=3 pipeline_parallel_size=2 gradient_accumulation_steps=8", 4, 0.5, 1.12, 1.16},
        {"zero_stage=3 recompute=all pipeline_parallel_size=2 gradient_accumulation_steps=4 virtual_pipeline_size=2", 4, 0.5, 1.15, 1.28},
    };
    static const world_rows large = {.rows = 8, .length = 64};
    sn_model_config config = tiny_llama();
    config.num_layers = 8;
    config.vocab_size = 2048;
    config.hidden_size = 256;
    config.intermediate_size = 768;
    config.num_heads = config.num_kv_heads = 4;
    config.head_dim = 64;
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
        for (int n = 0; n <= 1; n++) {
            world w;
            char options[160];
            double idle;
            snprintf(options, sizeof options, "threads=1 overlap_comm=%d %s", n, jobs[j].options);
            world_plan(&w, &large, &config, "cpu", jobs[j].ranks, options);
            const double found = ratio(&w, jobs[j].part, &idle);
            world_close(&w);
            if (n ? found > jobs[j].most || idle > jobs[j].idle : found < jobs[j].most)
                fail_msg("%s: %.3f, wanted at most %.3f; without delay %.3f of its computing, wanted %.3f", options, found, jobs[j].most,
                         idle, jobs[j].idle);
        }
}

/* Of a rank of a pipeline that is also data parallel: what is ahead, but for its first block's weights. What the next stage sends
 * may have to wait for sums before it. */
static void of_a_pipeline(void **state) {
    (void)state;
    static const char *const jobs[] = {"", "recompute=all", "pipeline_schedule=gpipe"};
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
        for (int n = 0; n <= 1; n++) {
            world w;
            char options[160];
            snprintf(options, sizeof options,
                     "threads=1 zero_stage=3 overlap_comm=%d pipeline_parallel_size=2 gradient_accumulation_steps=4 %s", n, jobs[j]);
            plan_ranks(&w, &rows, 4, options);
            for (int rank = 0; rank < 4; rank++) {
                const counts c = count_rank(&w, rank);
                if (c.gathers < 12 || c.sums < 4 * LAYERS) fail_msg("%s: rank %d: %d gathers, %d sums", options, rank, c.gathers, c.sums);
                if (n ? c.ahead < c.gathers - 3 || 4 * c.serial > c.gathers || 2 * c.waited > c.sums : c.ahead || 2 * c.waited < c.sums)
                    fail_msg("%s: rank %d: %d gathers, %d ahead, %d waited for; %d sums, %d waited for", options, rank, c.gathers, c.ahead,
                             c.serial, c.sums, c.waited);
            }
            world_close(&w);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(issued_before_the_block_before), cmocka_unit_test(of_a_pipeline),
                                       cmocka_unit_test(hidden_by_computing), cmocka_unit_test(second_buffer_is_billed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
