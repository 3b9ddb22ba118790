/* How much of the communication hides behind computing: ranks that are threads, over a comm that sleeps before each call.
 *
 *   overlap_bench [steps, default 6] [milliseconds a call, default: three of them, by the job]
 *
 * A line for each job and delay: calls of the comm by a rank in a step, milliseconds of each, seconds of a step without delays (computing),
 * the sum of a rank's delays (communication), then a step with them, where nothing runs ahead or behind and as it is by default, and each
 * over the larger of the two: 1 would be a perfect overlap, 2 none where both are alike. By default delays are such that communication
 * takes a quarter of the time of computing, half of it, and as long. Of steps the best counts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/team.h"
#include "engine/job.h"
#include "engine/session.h"
#include "run/run.h"

enum { RANKS_MOST = 4, GROUPS_MOST = 8, TOKENS = 512, HIDDEN = 256, VOCABULARY = 2048 };

static const struct work {
    const char *name, *options;
    int ranks, micro_batches;
} works[] = {
    {"data parallel", "zero_stage=0", 2, 1},
    {"ZeRO-1", "zero_stage=1", 2, 1},
    {"ZeRO-2", "zero_stage=2", 2, 1},
    {"ZeRO-3", "zero_stage=3", 2, 1},
    {"ZeRO-3, recompute all", "zero_stage=3 recompute=all", 2, 1},
    {"LoRA", "lora=on keep_quantised=off", 2, 1},
    {"LoRA, ZeRO-3", "lora=on keep_quantised=off zero_stage=3", 2, 1},
    {"ZeRO-3, 2 x 2 stages", "zero_stage=3 pipeline_parallel_size=2 gradient_accumulation_steps=4", 4, 4},
};

/* ---- The comm that sleeps ---- */

typedef struct delays {
    double each, slept; /* seconds */
    long calls;
} delays;

typedef struct slow {
    sn_comm outer, *inner;
    delays *of; /* its rank's */
} slow;

typedef struct rank {
    delays delays;
    slow groups[GROUPS_MOST]; /* the first is of all ranks */
    int n_groups;
} rank;

static rank ranks[RANKS_MOST];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sn_comm *inner(sn_comm *c) {
    const slow *s = c->state;
    const double start = now();
    s->of->calls++;
    if (s->of->each <= 0) return s->inner;
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * s->of->each)}, NULL);
    s->of->slept += now() - start;
    return s->inner;
}

static void all_to_all(sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces) {
    sn_comm *i = inner(c);
    i->all_to_all(i, send, at, bytes, room, pieces);
}

static void done(sn_comm *c) {
    sn_comm *i = ((slow *)c->state)->inner;
    i->done(i);
}

static void all_gather(sn_comm *c, const void *mine, const size_t *at, void *out) {
    sn_comm *i = inner(c);
    i->all_gather(i, mine, at, out);
}

static void exchange(sn_comm *c, int to, const void *send, size_t sends, int from, void *receive, size_t receives) {
    sn_comm *i = inner(c);
    i->exchange(i, to, send, sends, from, receive, receives);
}

static sn_comm *group(sn_comm *c, const int *members, int n);

static sn_comm *slow_comm(rank *r, sn_comm *of) {
    slow *s = &r->groups[r->n_groups++];
    if (!of) return NULL;
    *s = (slow){.inner = of, .outer = *of, .of = &r->delays};
    s->outer.all_to_all = all_to_all;
    s->outer.done = done;
    s->outer.all_gather = all_gather;
    s->outer.exchange = exchange;
    s->outer.group = group;
    s->outer.state = s;
    return &s->outer;
}

static sn_comm *group(sn_comm *c, const int *members, int n) {
    const slow *s = c->state;
    for (int r = 0; r < RANKS_MOST; r++)
        if (&ranks[r].delays == s->of)
            return ranks[r].n_groups < GROUPS_MOST ? slow_comm(&ranks[r], s->inner->group(s->inner, members, n)) : NULL;
    return NULL;
}

/* ---- A job ---- */

static void check(sn_status s) {
    if (s == SN_OK) return;
    fprintf(stderr, "overlap_bench: %s\n", sn_error_text());
    exit(1);
}

typedef struct job {
    sn_options *recipe;
    sn_session session; /* its mesh and graphs */
    sn_plan *plans[RANKS_MOST];
    sn_run *runs[RANKS_MOST];
    sn_comm *comms;
    sn_team *team;
    int ranks, program;
} job;

static void set_options(sn_options *recipe, const char *options) {
    char text[160], *at = text;
    snprintf(text, sizeof text, "%s", options);
    for (char *each; (each = strsep(&at, " "));) {
        char *value = strchr(each, '=');
        *value = 0;
        check(sn_options_set(recipe, each, value + 1, SN_FROM_COMMAND_LINE, "bench"));
    }
}

static void fill(const job *j, sn_run *run, const struct work *w) {
    static const float hyper[8] = {1e-4f, 0.1f, 0.001f, 1, 1};
    const int tokens = TOKENS / j->session.cluster.mesh.size[SN_MESH_DP];
    for (int m = 0; m < w->micro_batches; m++) {
        const char *const names[] = {"ids", "labels", "positions", "seq_start"};
        char text[32];
        for (int k = 0; k < 4; k++) {
            snprintf(text, sizeof text, m ? "%s.%d" : "%s", names[k], m);
            int32_t *to = sn_run_io(run, j->program, text, 0, NULL);
            for (int i = 0; to && i < tokens; i++) to[i] = k == 3 ? 0 : (i + (k == 1)) % VOCABULARY;
        }
        snprintf(text, sizeof text, m ? "scale.%d" : "scale", m);
        float *scale = sn_run_io(run, j->program, text, 0, NULL);
        if (scale) *scale = 1.0f / TOKENS;
    }
    memcpy(sn_run_io(run, j->program, "hyper", 0, NULL), hyper, sizeof hyper);
}

static void open_job(job *j, const struct work *w, const char *ahead) {
    sn_model_config model = {.architecture = "llama",
                             .vocab_size = VOCABULARY,
                             .hidden_size = HIDDEN,
                             .intermediate_size = 3 * HIDDEN,
                             .num_layers = 8,
                             .num_heads = 4,
                             .num_kv_heads = 4,
                             .head_dim = HIDDEN / 4,
                             .max_position = TOKENS,
                             .norm_eps = 1e-5,
                             .rope = {.theta = 10000},
                             .tie_word_embeddings = w->ranks == 2};
    sn_session *s = &j->session;
    *j = (job){.ranks = w->ranks};
    check(sn_recipe_new(&j->recipe));
    set_options(j->recipe, w->options);
    check(sn_options_set(j->recipe, "overlap_comm", ahead, SN_FROM_COMMAND_LINE, "bench"));
    check(sn_device_find("cpu", 1, &s->device));
    s->cluster.addresses = s->device.shape.addresses;
    s->ranks = w->ranks;
    check(sn_session_mesh(s, j->recipe));
    const sn_training_shape shape = {.tokens = TOKENS};
    check(sn_job_for_training(&model, NULL, &shape, j->recipe, &s->cluster, NULL, &s->job));
    check(sn_comm_threads_new(w->ranks, &j->comms));
    check(sn_team_open(w->ranks, NULL, &j->team));
    j->program = sn_job_role_index(s->job, SN_ROLE_TRAIN);
    for (int r = 0; r < w->ranks; r++) {
        const sn_plan_request request = {.device = s->device.shape, .reuse = true, .rank = r};
        ranks[r] = (rank){0};
        check(sn_plan_make(s->job, &request, &j->plans[r]));
        check(sn_run_open(j->plans[r], &s->device, slow_comm(&ranks[r], &j->comms[r]), &j->runs[r]));
        check(sn_load_weights(j->runs[r], s->job, 7));
        fill(j, j->runs[r], w);
    }
}

static void close_job(job *j) {
    for (int r = 0; r < j->ranks; r++) {
        sn_run_close(j->runs[r]);
        sn_plan_free(j->plans[r]);
    }
    sn_team_close(j->team);
    sn_comm_threads_free(j->comms);
    sn_job_free(j->session.job);
    sn_options_close(j->recipe);
}

static void run_rank(void *context, int64_t r, int member) {
    job *j = context;
    (void)member;
    check(sn_run_program(j->runs[r], j->program, 0));
}

/* ---- Its steps ---- */

enum { DELAYS = 3 };

static const double parts[DELAYS] = {0.25, 0.5, 1};

typedef struct times {
    double compute, mebibytes;                                /* seconds without delays; of a rank's device arena */
    long calls;                                               /* in a step, by the rank that calls most */
    double each[DELAYS], communication[DELAYS], step[DELAYS]; /* seconds */
} times;

/* Seconds of the best step. */
static double time_steps(job *j, int steps, double each) {
    double best = 1e9;
    for (int r = 0; r < j->ranks; r++) ranks[r].delays = (delays){.each = each};
    for (int i = 0; i < steps; i++) {
        const double start = now();
        sn_team_run(j->team, j->ranks, run_rank, j);
        if (now() - start < best) best = now() - start;
    }
    return best;
}

/* each: seconds of a call, by delay; 0: as long as the part of this job's computing says. */
static times measure(const struct work *w, const char *ahead, int steps, const double each[DELAYS]) {
    job j;
    times t = {0};
    open_job(&j, w, ahead);
    time_steps(&j, 1, 0);
    t.compute = time_steps(&j, steps, 0);
    for (int r = 0; r < w->ranks; r++)
        if (ranks[r].delays.calls / steps > t.calls) t.calls = ranks[r].delays.calls / steps;
    for (int d = 0; d < DELAYS; d++) {
        t.each[d] = each[d] > 0 ? each[d] : parts[d] * t.compute / (double)t.calls;
        t.step[d] = time_steps(&j, steps, t.each[d]);
        for (int r = 0; r < w->ranks; r++)
            if (ranks[r].delays.slept / steps > t.communication[d]) t.communication[d] = ranks[r].delays.slept / steps;
    }
    t.mebibytes = (double)j.plans[0]->arena_bytes[SN_TIER_DEVICE] / 1048576;
    close_job(&j);
    return t;
}

static double ratio(const times *t, int d) { return t->step[d] / (t->compute > t->communication[d] ? t->compute : t->communication[d]); }

int main(int argc, char **argv) {
    const int steps = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 6;
    const double each[DELAYS] = {argc > 2 ? atof(argv[2]) / 1000 : 0};
    printf(
        "| job | calls | ms each | compute s | communication s | step s, --overlap-comm 0 | ratio | step s | ratio | MiB a rank, more |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (size_t k = 0; k < sizeof works / sizeof works[0]; k++) {
        times on = measure(&works[k], "1", steps, each), off = measure(&works[k], "0", steps, on.each);
        on.compute = off.compute = on.compute < off.compute ? on.compute : off.compute; /* the same kernels on the same shapes */
        for (int d = 0; d < (argc > 2 ? 1 : DELAYS); d++)
            printf("| %s | %ld | %.2f | %.3f | %.3f | %.3f | %.2f | %.3f | %.2f | %.1f |\n", works[k].name, on.calls, 1000 * on.each[d],
                   on.compute, on.communication[d], off.step[d], ratio(&off, d), on.step[d], ratio(&on, d), on.mebibytes - off.mebibytes);
        fflush(stdout);
    }
    return 0;
}
