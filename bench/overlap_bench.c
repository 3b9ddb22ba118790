/* How much of the communication hides behind computing: ZeRO-3 on two ranks that are threads, over a comm that sleeps before each
 * collective.
 *
 *   overlap_bench [milliseconds a collective, default 4] [steps, default 6]
 *
 * One line for each number of blocks that gathers run ahead: seconds of a step without the delay (compute), the sum of the delays
 * (communication), a step with them, and that over the larger of the two: 1 would be a perfect overlap, 2 none where both are alike.
 * The best step counts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/team.h"
#include "engine/job.h"
#include "engine/session.h"
#include "run/run.h"

enum { RANKS = 2, TOKENS = 512, HIDDEN = 256 };

typedef struct slow {
    sn_comm outer, *inner;
    double delay; /* seconds */
    long calls;
} slow;

static slow slows[RANKS];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sn_comm *inner(sn_comm *c) {
    slow *s = c->state;
    s->calls++;
    if (s->delay > 0) nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * s->delay)}, NULL);
    return s->inner;
}

static void all_to_all(sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces) {
    sn_comm *i = inner(c);
    i->all_to_all(i, send, at, bytes, room, pieces);
}

static void done(sn_comm *c) {
    slow *s = c->state;
    s->inner->done(s->inner);
}

static void all_gather(sn_comm *c, const void *mine, const size_t *at, void *out) {
    sn_comm *i = inner(c);
    i->all_gather(i, mine, at, out);
}

static void check(sn_status s) {
    if (s == SN_OK) return;
    fprintf(stderr, "overlap_bench: %s\n", sn_error_text());
    exit(1);
}

typedef struct job {
    sn_run *runs[RANKS];
    int program;
} job;

static void run_rank(void *context, int64_t rank, int member) {
    job *j = context;
    (void)member;
    check(sn_run_program(j->runs[rank], j->program, 0));
}

/* Seconds of the best step. */
static double time_steps(job *j, sn_team *team, int steps) {
    double best = 1e9;
    for (int i = 0; i < steps; i++) {
        const double start = now();
        sn_team_run(team, RANKS, run_rank, j);
        if (now() - start < best) best = now() - start;
    }
    return best;
}

static void measure(const char *ahead, double delay, int steps) {
    sn_model_config model = {.vocab_size = 2048,
                             .hidden_size = HIDDEN,
                             .intermediate_size = 3 * HIDDEN,
                             .num_layers = 8,
                             .num_heads = 4,
                             .num_kv_heads = 4,
                             .head_dim = HIDDEN / 4,
                             .max_position = TOKENS,
                             .norm_eps = 1e-5,
                             .rope = {.theta = 10000},
                             .tie_word_embeddings = true};
    sn_options *recipe;
    sn_cluster cluster = {0};
    sn_device device;
    sn_job *graphs;
    sn_plan *plans[RANKS];
    sn_comm *comms;
    sn_team *team;
    job j = {0};
    strcpy(model.architecture, "llama");
    check(sn_recipe_new(&recipe));
    check(sn_options_set(recipe, "zero_stage", "3", SN_FROM_COMMAND_LINE, "bench"));
    check(sn_options_set(recipe, "overlap_comm", ahead, SN_FROM_COMMAND_LINE, "bench"));
    check(sn_options_set(recipe, "recompute", "all", SN_FROM_COMMAND_LINE, "bench"));
    check(sn_device_find("cpu", 1, &device));
    cluster.addresses = device.shape.addresses;
    for (int i = 0; i < SN_MESH_AXES; i++) cluster.mesh.size[i] = 1;
    cluster.mesh.size[SN_MESH_DP] = RANKS;
    const sn_training_shape shape = {.tokens = TOKENS};
    check(sn_job_for_training(&model, NULL, &shape, recipe, &cluster, NULL, &graphs));
    check(sn_comm_threads_new(RANKS, &comms));
    check(sn_team_open(RANKS, NULL, &team));
    j.program = sn_job_role_index(graphs, SN_ROLE_TRAIN);
    for (int r = 0; r < RANKS; r++) {
        const sn_plan_request request = {.device = device.shape, .reuse = true, .rank = r};
        slows[r] = (slow){.inner = &comms[r], .outer = comms[r]};
        slows[r].outer.all_to_all = all_to_all;
        slows[r].outer.done = done;
        slows[r].outer.all_gather = all_gather;
        slows[r].outer.state = &slows[r];
        check(sn_plan_make(graphs, &request, &plans[r]));
        check(sn_run_open(plans[r], &device, &slows[r].outer, &j.runs[r]));
        check(sn_load_weights(j.runs[r], graphs, 7));
        int32_t *ids = sn_run_io(j.runs[r], j.program, "ids", 0, NULL), *labels = sn_run_io(j.runs[r], j.program, "labels", 0, NULL);
        int32_t *positions = sn_run_io(j.runs[r], j.program, "positions", 0, NULL),
                *starts = sn_run_io(j.runs[r], j.program, "seq_start", 0, NULL);
        for (int i = 0; i < TOKENS / RANKS; i++) ids[i] = i % 2048, labels[i] = (i + 1) % 2048, positions[i] = i, starts[i] = 0;
        *(float *)sn_run_io(j.runs[r], j.program, "scale", 0, NULL) = 1.0f / TOKENS;
    }
    time_steps(&j, team, 1);
    slows[0].calls = 0;
    const double compute = time_steps(&j, team, steps);
    const double communication = delay * (double)slows[0].calls / steps;
    for (int r = 0; r < RANKS; r++) slows[r].delay = delay;
    const double both = time_steps(&j, team, steps);
    printf("ahead %s  compute %.4f s  communication %.4f s (%ld collectives)  step %.4f s  ratio %.2f  device arena %.1f MiB\n", ahead,
           compute, communication, slows[0].calls / (2 * steps), both, both / (compute > communication ? compute : communication),
           (double)plans[0]->arena_bytes[SN_TIER_DEVICE] / 1048576);
    for (int r = 0; r < RANKS; r++) {
        sn_run_close(j.runs[r]);
        sn_plan_free(plans[r]);
    }
    sn_team_close(team);
    sn_comm_threads_free(comms);
    sn_job_free(graphs);
    sn_options_close(recipe);
}

int main(int argc, char **argv) {
    const double delay = argc > 1 ? atof(argv[1]) / 1000 : 0.004;
    const int steps = argc > 2 ? atoi(argv[2]) : 6;
    measure("0", delay, steps);
    measure("1", delay, steps);
    measure("2", delay, steps);
    return 0;
}
