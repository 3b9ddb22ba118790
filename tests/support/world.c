#include "support/world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "engine/turns.h"

void world_plan(world *w, const world_rows *rows, const sn_model_config *model, const char *device, int ranks, const char *options) {
    *w = (world){.rows = *rows, .ranks = ranks, .recipe = tiny_recipe(options), .vocabulary = model->vocab_size};
    sn_session *s = &w->s;
    w->accumulation = sn_options_int(w->recipe, "gradient_accumulation_steps");
    assert_ok(sn_device_find(device, 1, &s->device));
    s->cluster.addresses = s->device.shape.addresses;
    s->cluster.processes = rows->processes;
    s->ranks = ranks;
    assert_ok(sn_session_cluster(s, w->recipe));
    assert_ok(sn_session_mesh(s, w->recipe));
    sn_training_shape shape = {.tokens = rows->rows * rows->length / w->accumulation, .evaluate = rows->evaluate};
    assert_ok(sn_job_for_training(model, NULL, &shape, w->recipe, &s->cluster, NULL, &s->job));
    for (int r = 0; r < ranks; r++) {
        sn_plan_request request = {.device = s->device.shape, .reuse = true, .rank = r};
        assert_ok(sn_plan_make(s->job, &request, &w->plans[r]));
    }
}

void world_open(world *w, const world_rows *rows, const sn_model_config *model, const char *device, int ranks, const char *options) {
    world_plan(w, rows, model, device, ranks, options);
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

void world_close(world *w) {
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

void world_run(world *w, int program) {
    w->program = program;
    sn_team_run(w->team, w->ranks, run_rank, w);
}

static void *input(sn_run *run, int program, const char *name, int k) {
    char text[32];
    snprintf(text, sizeof text, k ? "%s.%d" : "%s", name, k);
    return sn_run_io(run, program, text, 0, NULL);
}

void world_fill(world *w, int program, int step, int64_t m, int k, float scale) {
    const sn_mesh *mesh = &w->s.job->mesh;
    const int64_t dp = sn_mesh_data_ranks(mesh), length = w->rows.length, local = w->rows.rows * length / w->accumulation / dp;
    for (int r = 0; r < w->ranks; r++) {
        sn_run *run = w->runs[r];
        int64_t at = (m * dp + sn_mesh_data_index(mesh, r)) * local;
        int32_t *ids = input(run, program, "ids", k), *positions = input(run, program, "positions", k);
        int32_t *starts = input(run, program, "seq_start", k), *labels = input(run, program, "labels", k);
        uint32_t *key = input(run, program, "key", k);
        if (key) memcpy(key, (uint32_t[]){5, 6, (uint32_t)step, (uint32_t)at}, 16);
        *(float *)input(run, program, "scale", k) = scale;
        for (int64_t i = 0; i < local; i++, at++) {
            ids[i] = (int32_t)((at * 131 + step * 17) % w->vocabulary);
            positions[i] = (int32_t)(i % length);
            starts[i] = (int32_t)(i - i % length);
            labels[i] = w->rows.label ? w->rows.label(at, step, w->vocabulary) : (int32_t)((at * 29 + step) % w->vocabulary);
        }
    }
}

float world_norm(const world *w, int program, const char *options) {
    const float norm = ((const float *)sn_run_io(w->runs[0], program, "clip", 0, NULL))[2];
    for (int r = 1; r < w->ranks; r++)
        if (((const float *)sn_run_io(w->runs[r], program, "clip", 0, NULL))[2] != norm)
            fail_msg("%s: rank %d has another norm", options, r);
    return norm;
}

static void hash_values(world *w, char hex[65]) {
    const sn_job *job = w->s.job;
    sn_sha256 h;
    sn_sha256_start(&h);
    for (size_t p = 0; p < job->n_persistent; p++) {
        size_t bytes;
        sn_run *holder;
        if (job->persistent[p].class_of != SN_CLASS_WEIGHTS && job->persistent[p].parent == SN_NONE) continue;
        if (job->persistent[p].class_of == SN_CLASS_GRADIENTS) continue;
        if (sn_job_turn(job, (sn_pid)p) >= 0 && sn_job_turn(job, (sn_pid)p) != sn_turn_in_progress(job, WORLD_STEPS)) continue;
        for (int i = 0; sn_session_piece(&w->s, (sn_pid)p, i, &holder, &bytes); i++) {
            if (!bytes) continue;
            void *data = sn_alloc(bytes);
            assert_non_null(data);
            assert_ok(sn_run_read(holder, (sn_pid)p, 0, data, bytes));
            sn_sha256_add(&h, data, bytes);
            sn_free(data);
        }
    }
    sn_sha256_end(&h, hex);
}

void world_train(world *w, const char *options, world_outcome *out) {
    const sn_job *job = w->s.job;
    sn_pid loss = sn_job_find(job, "loss");
    int first = sn_job_role_index(job, SN_ROLE_TRAIN), next = sn_job_role_index(job, SN_ROLE_TRAIN_NEXT);
    int update = sn_job_role_index(job, SN_ROLE_UPDATE), updating = update < 0 ? first : update;
    for (int step = 0; step < WORLD_STEPS; step++) {
        const int number = (int)sn_turn_step(&job->turns, step) + 1;
        float hyper[8] = {1e-2f, (float)(1 - pow(0.9, number)), (float)(1 - pow(0.999, number)), 1, (float)number, 0, 0, (float)sn_turn_ends(&job->turns, step)};
        for (int r = 0; r < w->ranks; r++) {
            assert_ok(sn_take_turn(w->runs[r], job, step));
            memset(sn_run_persistent(w->runs[r], loss), 0, 16);
            memcpy(sn_run_io(w->runs[r], updating, "hyper", 0, NULL), hyper, sizeof hyper);
        }
        for (int64_t m = 0; m < w->accumulation; m++) {
            world_fill(w, m ? next : first, step, m, 0, 1.0f / (float)(w->rows.rows * w->rows.length));
            world_run(w, m ? next : first);
        }
        if (update >= 0) world_run(w, update);
        double sum = 0;
        for (int r = 0; r < w->ranks; r++)
            if (!sn_mesh_index(&job->mesh, r, SN_MESH_TP)) sum += ((double *)sn_run_persistent(w->runs[r], loss))[0];
        out->loss[step] = sum;
        out->norm[step] = world_norm(w, updating, options);
    }
    hash_values(w, out->weights);
}
