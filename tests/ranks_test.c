/* Data parallelism on ranks that are threads: the gradient equals that of one big batch whatever the split (a mean
 * of the means of micro-batches or ranks is another number), and recomputation, accumulation and ranks compose. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "support/tiny.h"

enum { MOST = 4, ROWS = 8, LENGTH = 6 };

typedef struct world {
    sn_options *recipe;
    sn_cluster cluster;
    sn_job *job;
    sn_plan *plan;
    sn_device device;
    sn_comm *comms;
    sn_run *runs[MOST];
    sn_team *team;
    int ranks, accumulation, program;
} world;

static void open_world(world *w, const sn_model_config *model, int ranks, int accumulation, const char *recompute) {
    char text[16];
    *w = (world){.ranks = ranks, .accumulation = accumulation};
    assert_ok(sn_recipe_new(&w->recipe));
    snprintf(text, sizeof text, "%d", accumulation > 1 ? accumulation : 2); /* so that gradients stay where they can be compared */
    assert_ok(sn_options_set(w->recipe, "gradient_accumulation_steps", text, SN_FROM_COMMAND_LINE, "test"));
    assert_ok(sn_options_set(w->recipe, "recompute", recompute, SN_FROM_COMMAND_LINE, "test"));
    assert_ok(sn_device_find("cpu", 1, &w->device));
    w->cluster.addresses = w->device.shape.addresses;
    w->cluster.mesh = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = ranks}});
    sn_training_shape shape = {.tokens = ROWS * LENGTH / accumulation};
    assert_ok(sn_job_for_training(model, NULL, &shape, w->recipe, &w->cluster, NULL, &w->job));
    sn_plan_request request = {.device = w->device.shape, .reuse = true};
    assert_ok(sn_plan_make(w->job, &request, &w->plan));
    assert_ok(sn_comm_threads_new(ranks, &w->comms));
    assert_ok(sn_team_open(ranks, NULL, &w->team));
    for (int r = 0; r < ranks; r++) {
        assert_ok(sn_run_open(w->plan, &w->device, &w->comms[r], &w->runs[r]));
        for (size_t p = 0; p < w->job->n_persistent; p++) {
            const sn_persistent *e = &w->job->persistent[p];
            if (e->class_of == SN_CLASS_WEIGHTS)
                sn_initialise(e, (sn_pid)p, 7, 0, w->plan->persistent[p].count, sn_run_persistent(w->runs[r], (sn_pid)p));
        }
    }
}

static void close_world(world *w) {
    for (int r = 0; r < w->ranks; r++) sn_run_close(w->runs[r]);
    sn_team_close(w->team);
    sn_comm_threads_free(w->comms);
    sn_plan_free(w->plan);
    sn_job_free(w->job);
    sn_options_close(w->recipe);
}

static void run_rank(void *context, int64_t rank, int member) {
    world *w = context;
    (void)member;
    assert_ok(sn_run_program(w->runs[rank], w->program, 0));
}

/* Label of token t of the whole batch: rows carry very different numbers of labels, the first rank only one. */
static int32_t label_of(int64_t t) {
    int64_t row = t / LENGTH, at = t % LENGTH;
    if (row < ROWS / 2) return row == 0 && at == 2 ? 11 : -100;
    return (int32_t)((t * 7) % TINY_VOCAB);
}

/* One step over the same ROWS x LENGTH tokens, in micro-batches over ranks; rows in order of (micro, rank). */
static double step(world *w, float *gradients, size_t *count) {
    int64_t local = ROWS * LENGTH / w->accumulation / w->ranks, labels = 0, next = 0;
    sn_pid loss = sn_job_find(w->job, "loss");
    for (int64_t t = 0; t < ROWS * LENGTH; t++) labels += label_of(t) >= 0;
    for (int r = 0; r < w->ranks; r++) memset(sn_run_persistent(w->runs[r], loss), 0, 16);
    for (int m = 0; m < w->accumulation; m++) {
        w->program = sn_job_graph_index(w->job, m ? "forward_backward_next" : "forward_backward");
        for (int r = 0; r < w->ranks; r++) {
            sn_run *run = w->runs[r];
            int32_t *ids = sn_run_io(run, w->program, "ids", 0, NULL), *positions = sn_run_io(run, w->program, "positions", 0, NULL);
            int32_t *starts = sn_run_io(run, w->program, "seq_start", 0, NULL), *out = sn_run_io(run, w->program, "labels", 0, NULL);
            *(float *)sn_run_io(run, w->program, "scale", 0, NULL) = 1.0f / (float)labels;
            for (int64_t i = 0; i < local; i++, next++) {
                ids[i] = (int32_t)((next * 13) % TINY_VOCAB);
                positions[i] = (int32_t)(i % LENGTH);
                starts[i] = (int32_t)(i - i % LENGTH);
                out[i] = label_of(next);
            }
        }
        sn_team_run(w->team, w->ranks, run_rank, w);
    }
    double sum = 0;
    for (int r = 0; r < w->ranks; r++) sum += ((double *)sn_run_persistent(w->runs[r], loss))[0];
    *count = 0;
    for (size_t p = 0; p < w->job->n_persistent; p++) {
        if (w->job->persistent[p].class_of != SN_CLASS_GRADIENTS) continue;
        size_t n = (size_t)w->plan->persistent[p].bytes / sizeof(float);
        memcpy(gradients + *count, sn_run_persistent(w->runs[0], (sn_pid)p), n * sizeof(float));
        for (int r = 1; r < w->ranks; r++) /* every rank holds the same bits */
            assert_memory_equal(sn_run_persistent(w->runs[r], (sn_pid)p), gradients + *count, n * sizeof(float));
        *count += n;
    }
    return sum / (double)labels;
}

static void check_family(sn_model_config config) {
    static float first[60000], other[60000], again[60000];
    static const int splits[][2] = {{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {4, 1}, {4, 2}};
    double first_loss = 0;
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        world w;
        size_t n;
        open_world(&w, &config, splits[i][0], splits[i][1], "none");
        double loss = step(&w, i ? other : first, &n);
        close_world(&w);
        if (!i) first_loss = loss;
        assert_true(fabs(loss - first_loss) < 1e-6);
        for (size_t k = 0; i && k < n; k++) assert_true(fabs(other[k] - first[k]) <= 1e-6 + 1e-5 * fabs(first[k]));
        open_world(&w, &config, splits[i][0], splits[i][1], "all"); /* exact: the same bits at the same split */
        assert_true(step(&w, again, &n) == loss);
        close_world(&w);
        assert_memory_equal(again, i ? other : first, n * sizeof(float));
    }
}

static void one_big_batch(void **state) {
    (void)state;
    check_family(tiny_llama());
    check_family(tiny_gpt2());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_big_batch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
