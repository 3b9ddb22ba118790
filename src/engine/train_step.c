/* One optimizer step: micro-batches on every rank, then the update. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/train_state.h"
#include "engine/turns.h"
#include "tensor/convert.h"

enum { GROWTH_INTERVAL = 2000, MOST_FAILURES = 20 };

typedef struct launch {
    sn_training *t;
    int program, slot;
    sn_status status[256];
} launch;

static void run_rank(void *context, int64_t rank, int member) {
    launch *l = context;
    (void)member;
    l->status[rank] = sn_run_program(l->t->runs[rank], l->program, l->slot);
}

/* Runs a program on all ranks at once. */
static sn_status run_all(sn_training *t, int program, int slot) {
    launch l = {.t = t, .program = program, .slot = slot};
    sn_team_run(t->rank_team, t->here, run_rank, &l);
    for (int r = 0; r < t->here; r++) SN_TRY(l.status[r]);
    return SN_OK;
}

static void clear_loss(sn_training *t) {
    for (int r = 0; r < t->here; r++)
        if (sn_run_persistent(t->runs[r], t->loss)) memset(sn_run_persistent(t->runs[r], t->loss), 0, 2 * sizeof(double));
}

/* Whether a rank's sum of losses counts: ranks along an axis over which tokens are spread have their own each, of others those
 * where the sum rests, or the first, speak for all. */
static bool counts(const sn_training *t, int rank) {
    const sn_job *job = t->session.job;
    const sn_graph *g = job->graphs[t->program];
    const sn_value *labels = &g->values[sn_graph_find(g, "labels")];
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *at = &job->persistent[t->loss].rest.split.axis[a];
        if (labels->result.axis[a].kind == SN_SHARD) continue;
        if (sn_mesh_index(&job->mesh, rank, a) != (at->kind == SN_AT ? at->at : 0)) return false;
    }
    return true;
}

/* Sums over ranks in rank order. On the way the ranks agree whether to stop. */
static void read_loss(sn_training *t, double *sum, double *count) {
    typedef struct report {
        double loss[2];
        int64_t stop;
    } report;
    report all[SN_RANKS_MOST];
    const bool stop = t->hooks && t->hooks->stop && *t->hooks->stop;
    for (int r = 0; r < t->here; r++) {
        report *own = &all[t->first + r];
        const double *loss = sn_run_persistent(t->runs[r], t->loss); /* NULL: it is elsewhere */
        *own = (report){.stop = stop};
        if (loss) memcpy(own->loss, loss, sizeof own->loss);
    }
    if (t->world.comm) sn_world_gather(&t->world, &all[t->first], sizeof(report), all);
    *sum = *count = 0;
    for (int r = 0; r < t->ranks; r++) {
        t->stop |= all[r].stop != 0;
        if (!counts(t, r)) continue;
        *sum += all[r].loss[0];
        *count += all[r].loss[1];
    }
}

static sn_status check_tokens(const sn_training *t, const sn_batch *b) {
    const int64_t vocabulary = t->model->config->vocab_size;
    for (int64_t i = 0; i < t->micro_rows * t->cutoff; i++) {
        if (b->ids[i] < 0 || b->ids[i] >= vocabulary)
            return sn_fail(SN_ERR_DATA, "token %d is outside the vocabulary of %lld", b->ids[i], (long long)vocabulary);
        if (b->labels[i] != SN_IGNORE_LABEL && (b->labels[i] < 0 || b->labels[i] >= vocabulary))
            return sn_fail(SN_ERR_DATA, "label %d is outside the vocabulary of %lld", b->labels[i], (long long)vocabulary);
    }
    return SN_OK;
}

/* The name of an input of micro-batch k of those that one run of the program takes. */
static const char *name_of(const char *name, int k, char text[64]) {
    snprintf(text, 64, k ? "%s.%d" : "%s", name, k);
    return text;
}

/* Gives a rank what it holds of an input over its rows' tokens; from NULL: the tokens' places in these rows. */
static void deal(sn_training *t, int rank, int program, int k, int slot, const char *input, const int32_t *from) {
    const sn_io_slot *info;
    char text[64];
    const char *name = name_of(input, k, text);
    const sn_job *job = t->session.job;
    const sn_graph *g = job->graphs[program];
    int32_t *to = sn_run_io(t->runs[rank - t->first], program, name, slot, &info);
    if (!to) return;
    const sn_value *v = &g->values[sn_graph_find(g, name)];
    int64_t base = sn_mesh_data_index(&job->mesh, rank) * t->micro_rows * t->cutoff;
    for (int64_t i = 0; i < info->shape.d[0]; i++) {
        int64_t place = sn_split_place(&v->result, &job->mesh, rank, 0, v->shape.d[0], i) - base;
        to[i] = from ? from[place] : (int32_t)place;
    }
}

/* Fills one micro-batch of every rank here, the k-th of the program's. */
static sn_status fill_inputs(sn_training *t, sn_loader *loader, int program, int64_t micro, int k, int slot, float scale) {
    char text[64];
    sn_batch b = {.ids = t->tokens[0], .positions = t->tokens[1], .seq_start = t->tokens[2], .labels = t->tokens[3]};
    int filled = -1;
    for (int r = 0; r < t->here; r++) {
        sn_run *run = t->runs[r];
        int index = sn_mesh_data_index(&t->session.job->mesh, t->first + r);
        if (index != filled) {
            SN_TRY(sn_loader_fill(loader, micro, index, &b));
            SN_TRY(check_tokens(t, &b));
            filled = index;
        }
        deal(t, t->first + r, program, k, slot, "ids", b.ids);
        deal(t, t->first + r, program, k, slot, "positions", b.positions);
        deal(t, t->first + r, program, k, slot, "seq_start", b.seq_start);
        deal(t, t->first + r, program, k, slot, "labels", b.labels);
        deal(t, t->first + r, program, k, slot, "token_index", NULL);
        *(float *)sn_run_io(run, program, name_of("scale", k, text), slot, NULL) = scale;
        uint32_t *key = sn_run_io(run, program, name_of("key", k, text), slot, NULL);
        uint64_t seed = (uint64_t)sn_options_int(t->recipe, "seed");
        int64_t row = (micro * t->rows_ranks + index) * t->micro_rows * t->cutoff;
        if (key) memcpy(key, (uint32_t[]){(uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)t->counters.batch_step, (uint32_t)row}, 16);
    }
    return SN_OK;
}

static void fill_hyper(sn_training *t, int program, double rate) {
    const sn_options *o = t->recipe;
    double step = (double)(sn_turn_step(&t->session.job->turns, t->counters.update_step) + 1);
    uint64_t seed = (uint64_t)sn_options_int(o, "seed");
    uint32_t words[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    float hyper[8] = {(float)rate, (float)(1 - pow(sn_options_float(o, "adam_beta1"), step)),
                      (float)(1 - pow(sn_options_float(o, "adam_beta2"), step)), (float)(1 / t->counters.loss_scale), (float)step};
    memcpy(hyper + 5, words, sizeof words);
    hyper[7] = (float)sn_turn_ends(&t->session.job->turns, t->counters.update_step);
    for (int r = 0; r < t->here; r++) memcpy(sn_run_io(t->runs[r], program, "hyper", 0, NULL), hyper, sizeof hyper);
}

/* The first weight that is not finite throughout; NULL: none. */
static const char *broken_weight(const sn_training *t) {
    const sn_job *job = t->session.job;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        if (e->class_of != SN_CLASS_WEIGHTS || !sn_dtype_is_float(e->rest.form)) continue;
        size_t item = (size_t)sn_dtypes[e->rest.form].bytes, bytes;
        sn_run *holder;
        for (int i = 0; sn_session_piece(&t->session, (sn_pid)p, i, &holder, &bytes); i++)
            for (size_t at = 0; at < bytes; at += item) {
                float x;
                char element[8] = {0};
                if (sn_run_read(holder, (sn_pid)p, at, element, item) != SN_OK) return e->name;
                sn_to_f32(e->rest.form, element, 1, &x);
                if (!isfinite(x)) return e->name;
            }
    }
    return NULL;
}

/* What a skipped update means: fp16 halves its scale and tries on; without a scale a NaN is a fault of the job. */
static sn_status after_skip(sn_training *t) {
    t->summary->skipped++;
    t->failures++;
    if (t->scaled && t->counters.loss_scale > 1) {
        t->counters.loss_scale /= 2;
        t->counters.scale_growth = 0;
    }
    const char *broken = t->failures >= MOST_FAILURES ? broken_weight(t) : NULL;
    if (broken)
        return sn_fail(SN_ERR_NUMERIC, "step %lld: %s is not finite; no update was made for %d steps", (long long)t->counters.batch_step,
                       broken, MOST_FAILURES);
    if (t->failures >= MOST_FAILURES)
        return sn_fail(SN_ERR_NUMERIC,
                       "step %lld: the gradient was not finite %d times in a row (loss %g, loss scale %g); no update was made since",
                       (long long)t->counters.batch_step, MOST_FAILURES, t->step_loss, t->counters.loss_scale);
    sn_warn("step %lld: the gradient is not finite, the update is skipped (loss %g, loss scale %g)", (long long)t->counters.batch_step,
            t->step_loss, t->counters.loss_scale);
    return SN_OK;
}

static void after_update(sn_training *t) {
    t->failures = 0;
    t->counters.update_step++;
    t->summary->steps++;
    if (t->scaled && ++t->counters.scale_growth >= GROWTH_INTERVAL) {
        t->counters.loss_scale *= 2;
        t->counters.scale_growth = 0;
    }
}

sn_status sn_training_step(sn_training *t, int64_t *tokens) {
    sn_step step;
    sn_data_cursor before = t->cursor;
    SN_TRY(sn_loader_step(t->loader, &t->cursor, &step));
    *tokens = step.tokens;
    if (step.label_tokens < 1) return sn_fail(SN_ERR_DATA, "step %llu holds no label", (unsigned long long)before.batch_step);
    clear_loss(t);
    for (int r = 0; r < t->here; r++) SN_TRY(sn_take_turn(t->runs[r], t->session.job, t->counters.update_step));
    float scale = (float)(t->counters.loss_scale / (double)step.label_tokens);
    int updating = t->update < 0 ? t->program : t->update;
    t->step_rate = sn_learning_rate(&t->schedule, t->counters.update_step);
    fill_hyper(t, updating, t->step_rate);
    int64_t at_once = t->session.plan->programs[t->program].micro_batches;
    for (int64_t m = 0; m < t->accumulation; m += at_once) {
        int program = m ? t->program_next : t->program, slot = (int)(m % 2);
        if (m && !sn_loader_samples(t->loader, m)) continue; /* the last step of an epoch may be short */
        for (int k = 0; k < at_once; k++) SN_TRY(fill_inputs(t, t->loader, program, m + k, k, slot, scale));
        SN_TRY(run_all(t, program, slot));
    }
    double sum, count;
    read_loss(t, &sum, &count);
    t->step_loss = sum / count;
    if (t->update >= 0) SN_TRY(run_all(t, t->update, 0));
    const float *clip = sn_run_io(t->runs[0], updating, "clip", 0, NULL);
    t->step_norm = clip[2];
    bool applied = clip[1] != 0;
    t->counters.batch_step++;
    t->counters.tokens += *tokens;
    t->counters.cursor = t->cursor;
    if (!applied && clip[3] != 0) /* the updates were made before */
        return sn_fail(SN_ERR_NUMERIC,
                       "step %lld: a gradient is not finite (loss %g), and other parameters have been updated before it was known: go on "
                       "from the last checkpoint",
                       (long long)t->counters.batch_step, t->step_loss);
    if (!applied) return after_skip(t);
    after_update(t);
    return SN_OK;
}

sn_status sn_training_evaluate(sn_training *t, double *loss) {
    sn_data_cursor at = {0};
    double sum = 0, count = 0;
    for (;;) {
        sn_step step;
        double part, labels;
        SN_TRY(sn_loader_step(t->eval_loader, &at, &step));
        SN_TRY(fill_inputs(t, t->eval_loader, t->evaluate, 0, 0, 0, 1));
        clear_loss(t);
        SN_TRY(run_all(t, t->evaluate, 0));
        read_loss(t, &part, &labels);
        sum += part;
        count += labels;
        if (step.ends_epoch) break;
    }
    *loss = count > 0 ? sum / count : NAN;
    return SN_OK;
}
