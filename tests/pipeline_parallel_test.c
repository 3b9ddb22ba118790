/* Pipeline stages give what one rank gives that accumulates as many micro-batches: the same losses and weights to the last bit, a table
 * that both ends use aside, whose gradient is added up in another order. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include "base/str.h"

#include "engine/session.h"
#include "plan/cluster.h"
#include "support/tiny.h"

enum { MOST = 8, LENGTH = 8, ROWS = 16, STEPS = 5 };

typedef struct world {
    sn_options *recipe;
    sn_session s;
    sn_plan *plans[MOST];
    sn_run *runs[MOST];
    sn_comm *comms;
    sn_team *team;
    int ranks, program;
    int64_t accumulation;
} world;

/* Values that training leaves, of every weight. */
typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
    float *weights;
    size_t n;
} outcome;

static sn_model_config four_blocks(bool tied) {
    sn_model_config c = tiny_llama();
    c.num_layers = 4;
    c.vocab_size = 509;
    c.tie_word_embeddings = tied;
    return c;
}

static void plan_world(world *w, const sn_model_config *model, const char *device, int ranks, const char *options) {
    *w = (world){.ranks = ranks, .recipe = tiny_recipe(options)};
    sn_session *s = &w->s;
    w->accumulation = sn_options_int(w->recipe, "gradient_accumulation_steps");
    assert_ok(sn_device_find(device, 1, &s->device));
    s->cluster.addresses = s->device.shape.addresses;
    s->ranks = ranks;
    assert_ok(sn_session_mesh(s, w->recipe));
    sn_training_shape shape = {.tokens = ROWS * LENGTH / w->accumulation, .evaluate = true};
    assert_ok(sn_job_for_training(model, NULL, &shape, w->recipe, &s->cluster, NULL, &s->job));
    for (int r = 0; r < ranks; r++) {
        sn_plan_request request = {.device = s->device.shape, .reuse = true, .rank = r};
        assert_ok(sn_plan_make(s->job, &request, &w->plans[r]));
    }
    if (getenv("SHOW")) for (int r = 0; r < ranks; r++) { sn_str t = {0}; sn_program_print(&w->plans[r]->programs[0].program, &t); printf("rank %d\n%s\n", r, t.data); }
    sn_plan_request all = {.device = s->device.shape, .reuse = true};
    sn_plan *largest;
    assert_ok(sn_plan_cluster(s->job, &all, &largest));
    sn_plan_free(largest);
}

static void open_world(world *w, const sn_model_config *model, int ranks, const char *options) {
    plan_world(w, model, "cpu", ranks, options);
    sn_session *s = &w->s;
    assert_ok(sn_comm_threads_new(ranks, &w->comms));
    assert_ok(sn_team_open(ranks, NULL, &w->team));
    for (int r = 0; r < ranks; r++) {
        assert_ok(sn_run_open(w->plans[r], &s->device, &w->comms[r], &w->runs[r]));
        assert_ok(sn_load_weights(w->runs[r], s->job, 7));
    }
    s->plan = w->plans[0];
    s->run = w->runs[0];
    s->runs = w->runs;
    s->n_runs = ranks;
}

static void close_world(world *w) {
    for (int r = 0; r < w->ranks; r++) sn_run_close(w->runs[r]);
    for (int r = 0; r < w->ranks; r++) sn_plan_free(w->plans[r]);
    sn_job_free(w->s.job);
    sn_comm_threads_free(w->comms);
    sn_team_close(w->team);
    sn_options_close(w->recipe);
}

static void run_rank(void *context, int64_t rank, int member) {
    world *w = context;
    (void)member;
    assert_ok(sn_run_program(w->runs[rank], w->program, 0));
}

static void *input(sn_run *run, int program, const char *name, int k) {
    char text[32];
    snprintf(text, sizeof text, k ? "%s.%d" : "%s", name, k);
    return sn_run_io(run, program, text, 0, NULL);
}

/* Micro-batch m, the k-th of a program's. */
static void fill(world *w, int64_t vocabulary, int step, int64_t m, int k) {
    int dp = w->s.cluster.mesh.size[SN_MESH_DP];
    int64_t local = ROWS * LENGTH / w->accumulation / dp;
    for (int r = 0; r < w->ranks; r++) {
        sn_run *run = w->runs[r];
        int64_t at = (m * dp + sn_mesh_index(&w->s.cluster.mesh, r, SN_MESH_DP)) * local;
        int32_t *ids = input(run, w->program, "ids", k), *positions = input(run, w->program, "positions", k);
        int32_t *starts = input(run, w->program, "seq_start", k), *labels = input(run, w->program, "labels", k);
        uint32_t *key = input(run, w->program, "key", k);
        if (key) memcpy(key, (uint32_t[]){5, 6, (uint32_t)step, (uint32_t)at}, 16);
        *(float *)input(run, w->program, "scale", k) = 1.0f / (ROWS * LENGTH);
        for (int64_t i = 0; i < local; i++, at++) {
            ids[i] = (int32_t)((at * 131 + step * 17) % vocabulary);
            positions[i] = (int32_t)(i % LENGTH);
            starts[i] = (int32_t)(i - i % LENGTH);
            labels[i] = (int32_t)((at * 29 + step) % vocabulary);
        }
    }
}

static double sum_of_losses(world *w, bool clear) {
    sn_pid loss = sn_job_find(w->s.job, "loss");
    double sum = 0;
    for (int r = 0; r < w->ranks; r++) {
        double *own = sn_run_persistent(w->runs[r], loss);
        if (own) sum += own[0];
        if (own && clear) memset(own, 0, 16);
    }
    return sum;
}

static void keep_weights(world *w, outcome *out) {
    const sn_job *job = w->s.job;
    for (int pass = 0; pass < 2; pass++) {
        out->n = 0;
        for (size_t p = 0; p < job->n_persistent; p++) {
            int64_t at;
            size_t bytes;
            sn_run *holder;
            if (job->persistent[p].class_of != SN_CLASS_WEIGHTS || !job->persistent[p].trainable) continue;
            sn_pid master = sn_job_master(job, (sn_pid)p), from = master == SN_NONE ? (sn_pid)p : master;
            int pieces = 0;
            for (; sn_session_piece(&w->s, from, pieces, &at, &holder, &bytes); pieces++) {
                if (pass) assert_ok(sn_run_read(holder, from, 0, out->weights + out->n, bytes));
                out->n += bytes / sizeof(float);
            }
            assert_true(pieces > 0);
        }
        if (!pass) assert_non_null(out->weights = sn_alloc(out->n * sizeof(float)));
    }
}

static void train(const sn_model_config *model, int ranks, const char *options, outcome *out) {
    world w;
    open_world(&w, model, ranks, options);
    const sn_job *job = w.s.job;
    int first = sn_job_role_index(job, SN_ROLE_TRAIN), next = sn_job_role_index(job, SN_ROLE_TRAIN_NEXT);
    int update = sn_job_role_index(job, SN_ROLE_UPDATE), updating = update < 0 ? first : update;
    int at_once = w.plans[0]->programs[first].micro_batches;
    for (int step = 0; step < STEPS; step++) {
        float hyper[8] = {1e-2f, (float)(1 - pow(0.9, step + 1)), (float)(1 - pow(0.999, step + 1)), 1, (float)(step + 1)};
        sum_of_losses(&w, true);
        for (int r = 0; r < ranks; r++) memcpy(sn_run_io(w.runs[r], updating, "hyper", 0, NULL), hyper, sizeof hyper);
        for (int64_t m = 0; m < w.accumulation; m += at_once) {
            w.program = m ? next : first;
            for (int k = 0; k < at_once; k++) fill(&w, model->vocab_size, step, m + k, k);
            sn_team_run(w.team, ranks, run_rank, &w);
        }
        w.program = update;
        if (update >= 0) sn_team_run(w.team, ranks, run_rank, &w);
        out->loss[step] = sum_of_losses(&w, false);
        out->norm[step] = ((const float *)sn_run_io(w.runs[0], updating, "clip", 0, NULL))[2];
        for (int r = 1; r < ranks; r++)
            if (((const float *)sn_run_io(w.runs[r], updating, "clip", 0, NULL))[2] != out->norm[step]) fail_msg("%s: rank %d has another norm", options, r);
    }
    keep_weights(&w, out);
    close_world(&w);
}

static double largest_difference(const outcome *a, const outcome *b) {
    double most = 0;
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < STEPS; i++) {
        most = fmax(most, fabs(a->loss[i] / b->loss[i] - 1));
        most = fmax(most, fabs((double)a->norm[i] / (double)b->norm[i] - 1));
    }
    for (size_t i = 0; i < a->n; i++) most = fmax(most, fabs((double)a->weights[i] - (double)b->weights[i]));
    return most;
}

/* `ranks` with `more` against as many data-parallel ranks alone; tolerance 0: the same bits. */
static void check(bool tied, int ranks, int dp, int accumulation, const char *both, const char *more, double tolerance) {
    sn_model_config config = four_blocks(tied);
    outcome one = {0}, stages = {0};
    char options[256];
    snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=%d %s", accumulation, both);
    train(&config, dp, options, &one);
    snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=%d %s %s", accumulation, both, more);
    train(&config, ranks, options, &stages);
    double most = largest_difference(&stages, &one);
    if (!(most <= tolerance))
        fail_msg("%d ranks, %s: differs by %g from one (%d data-parallel); losses %.9g, %.9g; norms %.9g, %.9g", ranks, options, most, dp, stages.loss[0],
                 one.loss[0], (double)stages.norm[0], (double)one.norm[0]);
    assert_true(isfinite(one.loss[0]) && one.loss[STEPS - 1] != one.loss[0]);
    sn_free(one.weights);
    sn_free(stages.weights);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tied), cmocka_unit_test(untied), cmocka_unit_test(tied), cmocka_unit_test(with_data_parallel), cmocka_unit_test(interleaved),
                                       cmocka_unit_test(with_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
