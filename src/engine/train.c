#include "engine/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/system.h"
#include "engine/export.h"
#include "engine/fit.h"
#include "engine/peft.h"
#include "engine/train_state.h"
#include "graph/op.h"
#include "io/safetensors.h"

/* Opens a run for each rank here. The first is session.run. */
static sn_status open_ranks(sn_training *t) {
    const char *adapter = sn_options_string(t->recipe, "adapter");
    t->runs = sn_alloc_zero((size_t)t->here, sizeof *t->runs);
    t->plans = sn_alloc_zero((size_t)t->here, sizeof *t->plans);
    if (!t->runs || !t->plans) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the ranks");
    if (t->here > 1) {
        SN_TRY(sn_comm_threads_new(t->here, &t->comms));
        SN_TRY(sn_team_open(t->here, NULL, &t->rank_team));
    }
    for (int r = 0; r < t->here; r++) {
        sn_session s = t->session;
        s.run = NULL;
        s.rank = t->first + r;
        if (r) SN_TRY(sn_session_plan(&s));
        t->plans[r] = s.plan;
        t->summary->planned_bytes += s.plan->bill.total;
        sn_status status = sn_session_open(&s, t->recipe, adapter, t->comms ? &t->comms[r] : t->world.comm);
        t->runs[r] = s.run;
        SN_TRY(status);
    }
    t->session.run = t->runs[0];
    t->session.runs = t->runs;
    t->session.n_runs = t->here;
    t->program = sn_job_role_index(t->session.job, SN_ROLE_TRAIN);
    t->program_next = sn_job_role_index(t->session.job, SN_ROLE_TRAIN_NEXT);
    t->update = sn_job_role_index(t->session.job, SN_ROLE_UPDATE);
    t->evaluate = sn_job_role_index(t->session.job, SN_ROLE_EVALUATE);
    t->loss = sn_job_find(t->session.job, "loss");
    return SN_OK;
}

static void close_training(sn_training *t) {
    sn_metrics_close(t->metrics);
    sn_events_close(t->events);
    for (int r = 1; t->runs && r < t->here; r++) sn_run_close(t->runs[r]);
    for (int r = 1; t->plans && r < t->here; r++) sn_plan_free(t->plans[r]);
    if (t->runs) t->session.run = t->runs[0];
    sn_session_close(&t->session);
    sn_team_close(t->rank_team);
    sn_comm_threads_free(t->comms);
    sn_free(t->runs);
    sn_free(t->plans);
    sn_training_close_data(t);
    sn_options_close(t->own_recipe);
}

static sn_status resume(sn_training *t) {
    bool found = false;
    if (!sn_options_bool(t->recipe, "resume")) return SN_OK;
    for (int r = 0; r < t->here; r++) {
        sn_session s = t->session;
        s.run = t->runs[r];
        SN_TRY(sn_checkpoint_load(&s, t->out_dir, &t->counters, t->digest, &found));
    }
    if (!found) {
        sn_warn("%s holds no whole checkpoint: training starts at step 0", t->out_dir);
        return SN_OK;
    }
    t->cursor = t->counters.cursor;
    t->summary->first_loss = t->counters.first_loss;
    t->summary->steps = t->counters.update_step;
    sn_info("resumed at step %lld", (long long)t->counters.batch_step);
    return SN_OK;
}

static sn_status check_disk(const sn_training *t) {
    uint64_t free_bytes, need = t->session.files;
    uint64_t arenas = t->session.plan->arena_bytes[SN_TIER_DISK] * (uint64_t)t->ranks;
    const char *folder = t->session.plan->disk_folder;
    if (arenas) {
        SN_TRY(sn_make_dirs(folder));
        SN_TRY(sn_disk_free(folder, &free_bytes));
        if (arenas > free_bytes)
            return sn_fail(SN_ERR_FILE, "%s has %llu bytes free, values that rest on disk need %llu", folder,
                           (unsigned long long)free_bytes, (unsigned long long)arenas);
        struct stat a, b;
        if (!stat(folder, &a) && !stat(t->out_dir, &b) && a.st_dev == b.st_dev) need += arenas;
    }
    SN_TRY(sn_disk_free(t->out_dir, &free_bytes));
    if (need > free_bytes)
        return sn_fail(SN_ERR_FILE, "%s has %llu bytes free, %scheckpoints and export need %llu", t->out_dir,
                       (unsigned long long)free_bytes, need > t->session.files ? "values that rest on disk, " : "",
                       (unsigned long long)need);
    return SN_OK;
}

/* Rank 0 alone writes. */
static sn_status open_records(sn_training *t) {
    if (t->world.rank) return SN_OK;
    char *metrics = sn_path_join(t->out_dir, "metrics.jsonl"), *events = sn_path_join(t->out_dir, "runs");
    sn_status s =
        metrics && events ? sn_metrics_open(metrics, t->counters.batch_step, &t->metrics) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    if (s == SN_OK) s = sn_events_open(events, t->counters.batch_step, &t->events);
    sn_free(metrics);
    sn_free(events);
    return s;
}

static sn_status record_step(sn_training *t, double started) {
    double rate = t->recent_seconds > 0 ? (double)t->recent_tokens / t->recent_seconds : 0;
    int64_t step = t->counters.batch_step;
    if (t->world.rank) return SN_OK;
    sn_metric items[] = {sn_metric_number("loss", t->step_loss), sn_metric_number("grad_norm", t->step_norm),
                         sn_metric_number("learning_rate", t->step_rate), sn_metric_integer("tokens", t->counters.tokens),
                         sn_metric_number("tokens_per_s", rate)};
    SN_TRY(sn_metrics_write(t->metrics, step, items, sizeof items / sizeof items[0]));
    SN_TRY(sn_events_scalar(t->events, "train/loss", step, t->step_loss));
    SN_TRY(sn_events_scalar(t->events, "train/grad_norm", step, t->step_norm));
    SN_TRY(sn_events_scalar(t->events, "train/learning_rate", step, t->step_rate));
    if (t->hooks && t->hooks->step) {
        double done = sn_now() - started;
        sn_step_report report = {.step = step,
                                 .total = t->total_steps,
                                 .loss = t->step_loss,
                                 .grad_norm = t->step_norm,
                                 .learning_rate = t->step_rate,
                                 .tokens_per_s = rate,
                                 .seconds_left = step > 0 ? done / (double)t->summary->steps * (double)(t->total_steps - step) : NAN,
                                 .memory = sn_rss_bytes(),
                                 .budget = t->session.plan->bill.total};
        t->hooks->step(t->hooks->context, &report);
    }
    t->recent_seconds = 0;
    t->recent_tokens = 0;
    return SN_OK;
}

static sn_status evaluate_and_record(sn_training *t) {
    double loss;
    SN_TRY(sn_training_evaluate(t, &loss));
    t->summary->eval_loss = loss;
    if (t->world.rank) return SN_OK;
    sn_metric item = sn_metric_number("eval_loss", loss);
    SN_TRY(sn_metrics_write(t->metrics, t->counters.batch_step, &item, 1));
    sn_info("step %lld: evaluation loss %.4f", (long long)t->counters.batch_step, loss);
    return sn_events_scalar(t->events, "eval/loss", t->counters.batch_step, loss);
}

static sn_status save_checkpoint(sn_training *t) {
    return sn_checkpoint_save(&t->session, t->out_dir, &t->counters, t->digest, sn_options_int(t->recipe, "save_total_limit"));
}

static sn_status train_loop(sn_training *t, double started) {
    int64_t logging = sn_options_int(t->recipe, "logging_steps"), saving = sn_options_int(t->recipe, "save_steps");
    int64_t evaluating = sn_options_int(t->recipe, "eval_steps"), saved = t->counters.batch_step;
    bool first = true;
    if (t->eval_loader && t->counters.batch_step == 0) SN_TRY(evaluate_and_record(t));
    while (t->counters.batch_step < t->total_steps) {
        double start = sn_now();
        if (first) t->summary->start_seconds = start - started;
        int64_t tokens;
        SN_TRY(sn_training_step(t, &tokens));
        double seconds = sn_now() - start;
        int64_t step = t->counters.batch_step;
        if (step == 1) t->counters.first_loss = t->summary->first_loss = t->step_loss;
        t->summary->last_loss = t->step_loss;
        t->recent_seconds += seconds;
        t->recent_tokens += tokens;
        t->clock += first ? 0 : seconds;
        t->clock_tokens += first ? 0 : tokens;
        t->clock_steps += !first;
        if (first || step == t->total_steps || (logging > 0 && step % logging == 0)) SN_TRY(record_step(t, started));
        first = false;
        if (t->eval_loader && evaluating > 0 && step % evaluating == 0 && step < t->total_steps) SN_TRY(evaluate_and_record(t));
        t->summary->interrupted = t->world.comm ? t->stop : t->hooks && t->hooks->stop && *t->hooks->stop;
        if ((saving > 0 && step % saving == 0) || t->summary->interrupted) {
            SN_TRY(save_checkpoint(t));
            saved = step;
        }
        if (t->summary->interrupted) return SN_OK;
    }
    if (t->summary->steps == 0) return sn_fail(SN_ERR_NUMERIC, "no update was applied in %lld steps", (long long)t->counters.batch_step);
    if (t->eval_loader) SN_TRY(evaluate_and_record(t));
    return saved == t->counters.batch_step ? SN_OK : save_checkpoint(t);
}

/* The adapter, or the whole model as a Hugging Face folder; with `gguf` as OUT/model.gguf too. */
static sn_status export_result(sn_training *t) {
    sn_export_report report;
    if (!t->model->has_weights && !t->model->tokenizer) return SN_OK; /* a bare shape: the checkpoint is all there is */
    if (sn_job_trains_adapters(t->session.job)) SN_TRY(sn_export_adapter(&t->session, t->recipe, t->model->path, t->out_dir));
    else SN_TRY(sn_export_hf(&t->session, t->out_dir, SN_F32, &report));
    if (!sn_options_bool(t->recipe, "gguf")) return SN_OK;
    char *path = sn_path_join(t->out_dir, "model.gguf");
    sn_status s = path ? sn_export_gguf(&t->session, path, SN_F32, &report) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_free(path);
    return s;
}

/* Where ranks are processes, rank 0 exports, and reads from the checkpoint just written what the others hold. */
static sn_status export_saved(sn_training *t) {
    sn_st saved;
    char path[64];
    snprintf(path, sizeof path, "checkpoint-%lld/state.safetensors", (long long)t->counters.batch_step);
    char *file = sn_path_join(t->out_dir, path);
    sn_status s = file ? sn_st_open(file, &saved) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    if (s == SN_OK) {
        t->session.saved = &saved;
        s = export_result(t);
        t->session.saved = NULL;
        sn_st_close(&saved);
    }
    sn_free(file);
    return s;
}

static sn_status finish(sn_training *t) {
    sn_train_summary *s = t->summary;
    struct memory {
        uint64_t peak, planned;
    } all[SN_RANKS_MOST] = {{0}}, own = {sn_peak_rss_bytes(), s->planned_bytes}, others = {0};
    sn_world_gather(&t->world, &own, sizeof own, all);
    for (int r = 1; r < t->world.size; r++) {
        others.peak += all[r].peak;
        others.planned += all[r].planned;
    }
    if (t->world.rank) return SN_OK;
    SN_TRY(t->world.comm ? export_saved(t) : export_result(t));
    s->tokens = t->counters.tokens;
    s->tokens_per_s = t->clock > 0 ? (double)t->clock_tokens / t->clock : 0;
    s->step_seconds = t->clock_steps > 0 ? t->clock / (double)t->clock_steps : NAN;
    s->peak_bytes = sn_peak_rss_bytes();
    sn_metric items[] = {sn_metric_integer("planned_bytes", (int64_t)s->planned_bytes),
                         sn_metric_integer("peak_bytes", (int64_t)s->peak_bytes),
                         sn_metric_integer("peak_bytes_of_all_ranks", (int64_t)(s->peak_bytes + others.peak)),
                         sn_metric_integer("planned_bytes_of_all_ranks", (int64_t)(s->planned_bytes + others.planned)),
                         sn_metric_integer("sent_bytes", (int64_t)sn_run_sent(t->runs[0])),
                         sn_metric_integer("planned_sent_bytes_a_step", (int64_t)t->forecast.sent_bytes),
                         sn_metric_integer("planned_disk_read_bytes_a_step", (int64_t)t->forecast.disk_read_bytes),
                         sn_metric_integer("planned_disk_written_bytes_a_step", (int64_t)t->forecast.disk_written_bytes),
                         sn_metric_number("tokens_per_s", s->tokens_per_s),
                         sn_metric_number("first_loss", s->first_loss),
                         sn_metric_number("last_loss", s->last_loss),
                         sn_metric_number("eval_loss", s->eval_loss),
                         sn_metric_integer("steps", s->steps),
                         sn_metric_integer("skipped", s->skipped),
                         sn_metric_integer("tokens", s->tokens),
                         sn_metric_number("start_seconds", s->start_seconds),
                         sn_metric_number("step_seconds", s->step_seconds),
                         sn_metric_number("estimated_step_seconds", s->estimated_step_seconds)};
    char *path = sn_path_join(t->out_dir, "summary.json");
    sn_status status =
        path ? sn_summary_write(path, items, sizeof items / sizeof items[0]) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_free(path);
    return status;
}

/* All ranks run the same collectives on the same data, or none starts. */
static sn_status compare_ranks(const sn_training *t) {
    uint32_t data[SN_RANKS_MOST], all[SN_RANKS_MOST], own = 0, steps = sn_crc32c(0, t->digest, strlen(t->digest));
    steps = sn_crc32c(steps, &t->total_steps, sizeof t->total_steps);
    for (int k = 0; k < t->session.job->n_graphs; k++) { /* alike on all ranks, whatever each of them does of it */
        const sn_graph *g = t->session.job->graphs[k];
        for (size_t i = 0; i < g->n_order; i++) {
            const sn_node *n = &g->nodes[g->order[i]];
            if (!sn_ops[n->op]->comm_axis) continue;
            own = sn_crc32c(own, &n->op, sizeof n->op);
            own = sn_crc32c(own, n->name, strlen(n->name));
            own = sn_crc32c(own, n->attrs.i, sizeof n->attrs.i);
        }
    }
    if (!t->world.comm) return SN_OK;
    sn_world_gather(&t->world, &steps, sizeof steps, data);
    sn_world_gather(&t->world, &own, sizeof own, all);
    for (int r = 1; r < t->world.size; r++)
        if (data[r] != data[0])
            return sn_fail(SN_ERR_USAGE, "rank %d has other data than rank 0 (here: %s, %lld steps)", r, t->digest,
                           (long long)t->total_steps);
    for (int r = 1; r < t->world.size; r++)
        if (all[r] != all[0]) return sn_fail(SN_ERR_USAGE, "rank %d has another model than rank 0: their plans send other things", r);
    return SN_OK;
}

static sn_status say_fit(const sn_fit *f) {
    sn_str text = {0};
    sn_fit_print(f, &text);
    for (char *save = NULL, *line = text.data ? strtok_r(text.data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        sn_info("%s", line);
    sn_status s = text.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a text") : SN_OK;
    sn_str_free(&text);
    return s;
}

/* What the machine's rates say a step will take, for the report beside what it took. */
static sn_status estimate(sn_training *t) {
    sn_rates rates;
    SN_TRY(sn_train_rates(&t->session, t->recipe, &rates, &t->summary->estimate_measured));
    SN_TRY(sn_train_forecast(&t->session, t->recipe, &rates, &t->forecast));
    t->summary->estimated_step_seconds = t->forecast.step_seconds;
    return SN_OK;
}

static sn_status run_training(sn_training *t, const char *data) {
    double started = sn_now();
    SN_TRY(sn_session_refuse_planned(t->recipe));
    const char *adapter = sn_options_string(t->recipe, "adapter");
    if (adapter && *adapter) {
        SN_TRY(sn_adapter_recipe(adapter, t->recipe, &t->own_recipe));
        t->recipe = t->own_recipe;
    }
    sn_options *fitted;
    SN_TRY(sn_world_open(t->recipe, &t->world));
    SN_TRY(sn_world_compare(&t->world, t->recipe));
    SN_TRY(
        sn_world_agree(&t->world, sn_fit_training(t->model, t->recipe, t->world.comm ? &t->world : NULL, &t->session, &fitted, &t->fit)));
    if (fitted) {
        sn_options_close(t->own_recipe);
        t->recipe = t->own_recipe = fitted;
    }
    if (!t->world.rank) SN_TRY(say_fit(&t->fit));
    t->ranks = t->session.ranks;
    t->rows_ranks = sn_mesh_data_ranks(&t->session.cluster.mesh);
    t->first = t->summary->rank = t->world.rank;
    t->here = t->world.comm ? 1 : t->ranks;
    SN_TRY(estimate(t));
    if (!t->world.rank && t->hooks && t->hooks->planned) {
        sn_session alone = t->session; /* what is shown asks no other rank: those are not here */
        alone.world = NULL;
        t->hooks->planned(t->hooks->context, &alone, t->recipe, &t->fit);
    }
    t->micro_rows = sn_options_int(t->recipe, "per_device_train_batch_size");
    t->accumulation = sn_options_int(t->recipe, "gradient_accumulation_steps");
    t->cutoff = sn_options_int(t->recipe, "cutoff_len");
    t->scaled = !strcmp(sn_options_string(t->recipe, "precision"), "fp16");
    t->counters.loss_scale = t->scaled ? 65536 : 1;
    if (!t->session.device.map) return sn_fail(SN_ERR_USAGE, "device %s plans only", t->session.device.shape.name);
    SN_TRY(sn_world_make_dirs(&t->world, t->out_dir));
    SN_TRY(sn_world_agree(&t->world, t->world.rank ? SN_OK : check_disk(t)));
    SN_TRY(sn_training_open_data(t, data));
    SN_TRY(compare_ranks(t));
    SN_TRY(sn_world_agree(&t->world, open_ranks(t)));
    SN_TRY(resume(t));
    SN_TRY(sn_world_agree(&t->world, open_records(t)));
    if (t->world.comm) t->world.comm->patience = sn_options_float(t->recipe, "rank_timeout");
    SN_TRY(train_loop(t, started));
    return finish(t);
}

sn_status sn_train(sn_model *model, const sn_options *recipe, const char *data, const char *out_dir, const sn_train_hooks *hooks,
                   sn_train_summary *summary) {
    sn_training t = {.model = model, .recipe = recipe, .hooks = hooks, .summary = summary, .out_dir = out_dir};
    *summary = (sn_train_summary){.first_loss = NAN, .last_loss = NAN, .eval_loss = NAN, .step_seconds = NAN};
    sn_status s = run_training(&t, data);
    int rank = t.world.rank, size = t.world.size;
    close_training(&t);
    sn_world_close(&t.world, s != SN_OK);
    if (s == SN_OK || size <= 1) return s;
    char text[1024];
    snprintf(text, sizeof text, "%s", sn_error_text());
    return sn_fail(s, "rank %d: %s", rank, text);
}
