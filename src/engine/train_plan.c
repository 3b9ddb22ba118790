/* The plan of a training job, as `plan` prints it and `train` runs it. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/checkpoint.h"
#include "engine/probe_file.h"
#include "engine/train.h"

static bool wants_evaluation(const sn_options *r) {
    const char *eval_data = sn_options_string(r, "eval_data");
    return sn_options_float(r, "eval_fraction") > 0 || (eval_data && *eval_data);
}

/* What the run leaves on disk at most: checkpoints (a new one is whole before the oldest goes), the result in f32. */
static uint64_t file_bytes(const sn_job *job, const sn_options *recipe) {
    int64_t kept = sn_options_int(recipe, "save_total_limit");
    uint64_t checkpoints = 1 + (sn_options_int(recipe, "save_steps") > 0 && kept > 0 ? (uint64_t)kept : sn_options_bool(recipe, "resume"));
    bool adapters = sn_job_trains_adapters(job);
    uint64_t trained = 0, all = 0;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        size_t bytes;
        if (e->class_of != SN_CLASS_WEIGHTS || !sn_shape_bytes(&e->shape, SN_F32, &bytes)) continue;
        all += bytes;
        if (e->trainable) trained += bytes;
    }
    return checkpoints * sn_checkpoint_bytes(job) + (adapters ? trained : all) + (sn_options_bool(recipe, "gguf") ? all : 0);
}

static sn_status plan_training(sn_session *s, sn_model *model, const sn_options *recipe, const sn_world *world, const char *stop_after) {
    int64_t rows = sn_options_int(recipe, "per_device_train_batch_size"), cutoff = sn_options_int(recipe, "cutoff_len"), tokens;
    *s = (sn_session){.model = model};
    SN_TRY(sn_session_machine(s, recipe));
    SN_TRY(sn_session_cluster(s, recipe));
    SN_TRY(sn_session_join(s, recipe, world));
    SN_TRY(sn_session_mesh(s, recipe));
    if (rows < 1 || cutoff < 2 || !sn_mul_i64(rows, cutoff, &tokens) ||
        !sn_mul_i64(tokens, sn_mesh_data_ranks(&s->cluster.mesh), &tokens) || tokens > INT32_MAX)
        return sn_fail(SN_ERR_USAGE,
                       "a micro-batch of %lld rows of %lld tokens cannot be: wanted at least 1 and 2, and fewer than 2^31 tokens",
                       (long long)rows, (long long)cutoff);
    if (cutoff > model->config->max_position && model->config->max_position > 0)
        sn_warn("cutoff_len %lld is longer than the model's %lld positions", (long long)cutoff, (long long)model->config->max_position);
    SN_TRY(sn_recipe_check_batch(recipe, sn_mesh_data_ranks(&s->cluster.mesh)));
    sn_training_shape shape = {.tokens = tokens, .evaluate = wants_evaluation(recipe)};
    sn_parameters parameters = sn_model_parameters(model);
    SN_TRY(sn_job_for_training(model->config, parameters.find ? &parameters : NULL, &shape, recipe, &s->cluster, stop_after, &s->job));
    s->exports = !sn_job_trains_adapters(s->job) || sn_options_bool(recipe, "gguf");
    s->files = file_bytes(s->job, recipe);
    return SN_OK;
}

static double rows_of(const sn_options *recipe) { return (double)sn_options_int(recipe, "per_device_train_batch_size"); }

sn_status sn_train_forecast(const sn_session *s, const sn_options *recipe, const sn_rates *rates, sn_forecast *f) {
    int64_t steps = sn_options_int(recipe, "gradient_accumulation_steps");
    int64_t tokens = steps * sn_options_int(recipe, "per_device_train_batch_size") * sn_options_int(recipe, "cutoff_len");
    tokens = tokens * sn_mesh_data_ranks(&s->cluster.mesh) / s->ranks;
    *f = (sn_forecast){.accelerator = s->accelerator, .ranks = s->ranks, .nodes = s->nodes};
    sn_rates here = *rates;
    here.rows = rows_of(recipe);
    return sn_plan_forecast(s->plan, &here, steps, tokens, f);
}

/* Of the folder's disk where it was measured, else of some disk of this machine. */
static void take_disk(const sn_probe *p, const char *folder, sn_rates *rates) {
    const sn_probe_disk *d = sn_probe_find_disk(p, folder);
    if (!d && p->n_disks) d = &p->disks[0];
    rates->disk_read = d ? d->read_bytes : 1e9;
    rates->disk_write = d ? d->write_bytes : 5e8;
}

sn_status sn_train_rates(const sn_session *s, const sn_options *recipe, sn_rates *rates, bool *measured) {
    sn_probe probe = {0};
    *measured = true;
    if (s->accelerator) {
        *rates = sn_accelerator_rates(s->accelerator, s->ranks, s->nodes);
    } else {
        sn_status status = sn_probe_cached(s->device.shape.threads, &probe, measured);
        if (status == SN_ERR_NO_MEMORY) return status;
        if (status != SN_OK) *measured = false;
        if (!*measured) probe = (sn_probe){.f32_flops = 1e11, .read_bytes = 2e10};
        *rates = (sn_rates){
            .f32_flops = probe.f32_flops, .bf16_flops = probe.bf16_flops, .bytes_per_s = probe.read_bytes, .profile = probe.profile};
        take_disk(&probe, sn_passes_folder(recipe, NULL), rates);
    }
    return SN_OK;
}

/* By rates, known or looked up, where ranks may wait for one another. */
static sn_status plan_within(sn_session *s, const sn_options *recipe, uint64_t most, const sn_rates *known) {
    sn_rates rates;
    bool measured;
    if (!s->whole_cluster && !sn_session_ranks_differ(s)) return sn_session_plan_within(s, most, NULL);
    if (known) rates = *known;
    else SN_TRY(sn_train_rates(s, recipe, &rates, &measured));
    rates.rows = rows_of(recipe);
    return sn_session_plan_within(s, most, &rates);
}

static sn_status plan(sn_model *model, const sn_options *recipe, const sn_world *world, const char *stop_after, uint64_t most,
                      const sn_rates *known, sn_session *s) {
    sn_status status = plan_training(s, model, recipe, world, stop_after);
    if (status == SN_OK && !stop_after) status = plan_within(s, recipe, most, known);
    if (status != SN_OK) sn_session_close(s);
    return status;
}

sn_status sn_train_plan(sn_model *model, const sn_options *recipe, const sn_world *world, const char *stop_after, sn_session *s) {
    return plan(model, recipe, world, stop_after, 0, NULL, s);
}

sn_status sn_train_plan_within(sn_model *model, const sn_options *recipe, const sn_world *world, uint64_t most, const sn_rates *rates,
                               sn_session *s) {
    return plan(model, recipe, world, NULL, most, rates, s);
}
