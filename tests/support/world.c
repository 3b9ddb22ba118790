#include "support/world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/turns.h"
#include "plan/cluster.h"
#include "tensor/convert.h"

/* A training job on this device, as the recipe and s->ranks say. */
static void make_job(sn_session *s, const sn_options *recipe, const sn_model_config *model, const sn_training_shape *shape,
                     const char *device) {
    assert_ok(sn_device_find(device, 1, &s->device));
    s->cluster.addresses = s->device.shape.addresses;
    assert_ok(sn_session_cluster(s, recipe));
    assert_ok(sn_session_mesh(s, recipe));
    assert_ok(sn_job_for_training(model, NULL, shape, recipe, &s->cluster, NULL, &s->job));
}

void world_plan(world *w, const world_rows *rows, const sn_model_config *model, const char *device, int ranks, const char *options) {
    *w = (world){.rows = *rows, .ranks = ranks, .recipe = tiny_recipe(options), .vocabulary = model->vocab_size};
    sn_session *s = &w->s;
    w->accumulation = sn_options_int(w->recipe, "gradient_accumulation_steps");
    s->cluster.processes = rows->processes;
    s->ranks = ranks;
    sn_training_shape shape = {.tokens = rows->rows * rows->length / w->accumulation, .evaluate = rows->evaluate};
    make_job(s, w->recipe, model, &shape, device);
    for (int r = 0; r < ranks; r++) {
        sn_plan_request request = {.device = s->device.shape, .reuse = true, .rank = r};
        assert_ok(sn_plan_make(s->job, &request, &w->plans[r]));
    }
}

size_t world_classes(const sn_model_config *config, int ranks, const char *options) {
    sn_options *recipe = tiny_recipe(options);
    sn_session s = {.ranks = ranks};
    sn_plan *plans[32], *most;
    int *first;
    size_t n;
    assert_true(ranks <= 32);
    sn_training_shape shape = {.tokens = (int64_t)ranks * 7};
    make_job(&s, recipe, config, &shape, "cpu");
    assert_ok(sn_plan_rank_classes(s.job, &first, &n));
    for (int r = 0; r < ranks; r++) {
        sn_plan_request request = {.device = s.device.shape, .reuse = true, .rank = r};
        assert_ok(sn_plan_make(s.job, &request, &plans[r]));
        bool alike = false;
        for (size_t i = 0; i < n && first[i] <= r; i++)
            alike |= plans[first[i]]->bill.total == plans[r]->bill.total &&
                     !memcmp(plans[first[i]]->bill.at_rest, plans[r]->bill.at_rest, sizeof plans[r]->bill.at_rest);
        if (!alike) fail_msg("%s: rank %d is like none that is planned", options, r);
    }
    sn_plan_request request = {.device = s.device.shape, .reuse = true};
    assert_ok(sn_plan_cluster(s.job, &request, &most));
    for (int r = 0; r < ranks; r++) {
        assert_true(plans[r]->bill.total <= most->bill.total);
        sn_plan_free(plans[r]);
    }
    sn_plan_free(most);
    sn_free(first);
    sn_job_free(s.job);
    sn_options_close(recipe);
    return n;
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

static void *input(sn_run *run, int program, const char *name, int k, const sn_io_slot **info) {
    char text[32];
    snprintf(text, sizeof text, k ? "%s.%d" : "%s", name, k);
    return sn_run_io(run, program, text, 0, info);
}

/* The place in a micro-batch of what a rank holds at `i` of an input over its tokens. */
static int64_t place_of(const world *w, int program, const char *name, int rank, int64_t i) {
    const sn_graph *g = w->s.job->graphs[program];
    const sn_value *v = &g->values[sn_graph_find(g, name)];
    return sn_split_place(&v->result, &w->s.job->mesh, rank, 0, v->shape.d[0], i);
}

void world_fill(world *w, int program, int step, int64_t m, int k, float scale) {
    static const char *const names[] = {"ids", "positions", "seq_start", "labels", "token_index"};
    const sn_mesh *mesh = &w->s.job->mesh;
    const int64_t length = w->rows.length, tokens = w->rows.rows * length / w->accumulation, rows = tokens / sn_mesh_data_ranks(mesh);
    for (int r = 0; r < w->ranks; r++) {
        const int64_t base = sn_mesh_data_index(mesh, r) * rows;
        const sn_io_slot *info;
        uint32_t *key = input(w->runs[r], program, "key", k, &info);
        if (key) memcpy(key, (uint32_t[]){5, 6, (uint32_t)step, (uint32_t)(m * tokens + base)}, 16);
        *(float *)input(w->runs[r], program, "scale", k, &info) = scale;
        for (int n = 0; n < 5; n++) {
            int32_t *to = input(w->runs[r], program, names[n], k, &info);
            for (int64_t i = 0; to && i < info->shape.d[0]; i++) {
                const int64_t place = place_of(w, program, names[n], r, i), at = m * tokens + place, own = place - base;
                const int32_t label = w->rows.label ? w->rows.label(at, step, w->vocabulary) : (int32_t)((at * 29 + step) % w->vocabulary);
                to[i] = (int32_t[]){(int32_t)((at * 131 + step * 17) % w->vocabulary), (int32_t)(own % length),
                                    (int32_t)(own - own % length), label, (int32_t)own}[n];
            }
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

/* Ranks along an axis over which labels are spread have their own losses each; of others those where the sum rests, or the first, speak. */
static bool counts(const world *w, sn_pid loss, int rank) {
    const sn_job *job = w->s.job;
    const sn_graph *g = job->graphs[sn_job_role_index(job, SN_ROLE_TRAIN)];
    const sn_value *labels = &g->values[sn_graph_find(g, "labels")];
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *at = &job->persistent[loss].rest.split.axis[a];
        if (labels->result.axis[a].kind != SN_SHARD && sn_mesh_index(&job->mesh, rank, a) != (at->kind == SN_AT ? at->at : 0)) return false;
    }
    return true;
}

/* The sum of losses over all ranks, which begins anew. */
static double take_loss(world *w) {
    const sn_pid loss = sn_job_find(w->s.job, "loss");
    double sum = 0;
    for (int r = 0; r < w->ranks; r++) {
        double *own = sn_run_persistent(w->runs[r], loss);
        if (own && counts(w, loss, r)) sum += own[0];
        if (own) memset(own, 0, 2 * sizeof *own);
    }
    return sum;
}

static int64_t labels_of(const world *w, int step) {
    int64_t n = 0;
    for (int64_t at = 0; at < w->rows.rows * w->rows.length; at++) n += !w->rows.label || w->rows.label(at, step, w->vocabulary) >= 0;
    return n;
}

void world_train(world *w, double rate, const char *options, world_outcome *out) {
    const sn_job *job = w->s.job;
    const int first = sn_job_role_index(job, SN_ROLE_TRAIN), next = sn_job_role_index(job, SN_ROLE_TRAIN_NEXT),
              update = sn_job_role_index(job, SN_ROLE_UPDATE), updating = update < 0 ? first : update;
    const int at_once = w->plans[0]->programs[first].micro_batches;
    out->steps = w->rows.steps ? w->rows.steps : WORLD_STEPS;
    for (int step = 0; step < out->steps; step++) {
        const int number = (int)sn_turn_step(&job->turns, step) + 1;
        const float hyper[8] = {(float)rate, (float)(1 - pow(0.9, number)),         (float)(1 - pow(0.999, number)), 1, (float)number, 0,
                                0,           (float)sn_turn_ends(&job->turns, step)};
        const int64_t labels = labels_of(w, step);
        take_loss(w);
        for (int r = 0; r < w->ranks; r++) {
            assert_ok(sn_take_turn(w->runs[r], job, step));
            memcpy(sn_run_io(w->runs[r], updating, "hyper", 0, NULL), hyper, sizeof hyper);
        }
        for (int64_t m = 0; m < w->accumulation; m += at_once) {
            for (int k = 0; k < at_once; k++) world_fill(w, m ? next : first, step, m + k, k, 1.0f / (float)labels);
            world_run(w, m ? next : first);
        }
        if (update >= 0) world_run(w, update);
        out->loss[step] = take_loss(w) / (double)labels;
        out->norm[step] = world_norm(w, updating, options);
    }
}

/* All of a value, from whichever ranks hold it. */
static void collect(const world *w, sn_pid p, float *to, int64_t all) {
    const sn_persistent *e = &w->s.job->persistent[p];
    const size_t item = (size_t)sn_dtypes[e->rest.form].bytes;
    int64_t where, n;
    for (int64_t i = 0; i < all; i++) to[i] = NAN;
    for (int r = 0; r < w->ranks; r++) {
        const sn_placed *at = sn_run_placed(w->runs[r], p);
        for (int64_t k = 0; k < at->count; k += n) {
            n = sn_placed_run(at, &e->shape, k, &where);
            assert_true(n > 0 && where >= 0 && where + n <= all);
            float *own = sn_alloc((size_t)n * sizeof *own);
            char *held = sn_alloc((size_t)n * item);
            assert_true(own && held);
            assert_ok(sn_run_read(w->runs[r], p, (uint64_t)k * item, held, (size_t)n * item));
            sn_to_f32(e->rest.form, held, n, own);
            for (int64_t i = 0; i < n; i++) {
                if (!isnan(to[where + i]) && to[where + i] != own[i])
                    fail_msg("%s[%ld]: rank %d holds another value", e->name, (long)(where + i), r);
                to[where + i] = own[i];
            }
            sn_free(own);
            sn_free(held);
        }
    }
    for (int64_t i = 0; i < all; i++)
        if (isnan(to[i])) fail_msg("%s[%ld] is nowhere", e->name, (long)i);
}

void world_keep(world *w, world_outcome *out) {
    const sn_job *job = w->s.job;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        const int32_t turn = sn_job_turn(job, (sn_pid)p);
        if (turn >= 0 && turn != sn_turn_in_progress(job, out->steps)) continue; /* its bytes are another turn's */
        const bool master = e->parent != SN_NONE && sn_job_master(job, e->parent) == p,
                   state = e->class_of == SN_CLASS_OPTIMIZER && e->parent != SN_NONE;
        const bool weight = master || (e->class_of == SN_CLASS_WEIGHTS && e->trainable && sn_job_master(job, (sn_pid)p) == SN_NONE);
        float **values = weight ? &out->weights : &out->moments;
        size_t *held = weight ? &out->n_weights : &out->n_moments;
        int64_t n;
        if (!(weight || state) || !sn_dtype_is_float(e->rest.form)) continue;
        assert_true(sn_shape_elements(&e->shape, &n));
        assert_non_null(*values = sn_realloc(*values, (*held + (size_t)n) * sizeof(float)));
        collect(w, (sn_pid)p, *values + *held, n);
        *held += (size_t)n;
    }
    const int evaluate = sn_job_role_index(job, SN_ROLE_EVALUATE);
    if (evaluate < 0) return;
    take_loss(w);
    world_fill(w, evaluate, 0, 0, 0, 1);
    world_run(w, evaluate);
    out->evaluated = take_loss(w);
}

void world_forget(world_outcome *out) {
    sn_free(out->weights);
    sn_free(out->moments);
    *out = (world_outcome){0};
}

void world_compare(const world_outcome *got, const world_outcome *wanted, double tolerance, const char *options) {
    assert_true(got->steps == wanted->steps && got->steps > 1);
    for (int i = 0; i < got->steps; i++) {
        const double loss = fabs(got->loss[i] / wanted->loss[i] - 1), norm = fabs((double)got->norm[i] / (double)wanted->norm[i] - 1);
        if (!(loss <= tolerance && norm <= tolerance))
            fail_msg("%s: step %d: loss %.17g, wanted %.17g; norm %.9g, %.9g", options, i + 1, got->loss[i], wanted->loss[i],
                     (double)got->norm[i], (double)wanted->norm[i]);
    }
    assert_true(isfinite(wanted->loss[0]) && wanted->loss[wanted->steps - 1] != wanted->loss[0]);
    if (got->evaluated != wanted->evaluated && !(fabs(got->evaluated / wanted->evaluated - 1) <= tolerance))
        fail_msg("%s: evaluated as %.17g, wanted %.17g", options, got->evaluated, wanted->evaluated);
    assert_true(got->n_weights == wanted->n_weights && got->n_moments == wanted->n_moments && got->n_weights);
    const double weights = test_error(got->weights, wanted->weights, got->n_weights),
                 moments = test_error(got->moments, wanted->moments, got->n_moments);
    if (!(weights <= tolerance && moments <= tolerance)) fail_msg("%s: weights differ by %g, moments by %g", options, weights, moments);
}
