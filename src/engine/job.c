#include "engine/job.h"

#include "base/rng.h"
#include "tensor/convert.h"

static const sn_option training_options[] = {
    {.key = "full", .kind = SN_OPTION_FLAG, .help = "train every weight (the default without adapters)"},
    {.key = "per_device_train_batch_size",
     .aliases = "micro_batch_size,b",
     .deepspeed = "train_micro_batch_size_per_gpu",
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .help = "rows of a micro-batch"},
    {.key = "train_batch_size",
     .deepspeed = "train_batch_size",
     .kind = SN_OPTION_INT,
     .default_text = "0",
     .metavar = "N",
     .has_least = true,
     .help = "rows of a whole step over all ranks: changes nothing, is checked; 0: whatever the others make"},
    {.key = "cutoff_len",
     .aliases = "max_seq_length,max_length",
     .kind = SN_OPTION_INT,
     .default_text = "512",
     .metavar = "N",
     .help = "tokens of a row"},
    {.key = "packing", .kind = SN_OPTION_FLAG, .help = "several samples a row, unseen by each other"},
    {.key = "max_steps",
     .deepspeed = "scheduler.params.total_num_steps",
     .kind = SN_OPTION_INT,
     .default_text = "0",
     .metavar = "N",
     .help = "optimizer steps; 0: as num_train_epochs says"},
    {.key = "num_train_epochs",
     .aliases = "epochs",
     .kind = SN_OPTION_FLOAT,
     .default_text = "3",
     .metavar = "N",
     .help = "passes over the data"},
    {.key = "seed",
     .deepspeed = "seed",
     .kind = SN_OPTION_INT,
     .default_text = "42",
     .metavar = "N",
     .help = "of initialisation, shuffling, dropout, rounding"},
    {.key = "shuffle", .kind = SN_OPTION_SWITCH, .default_text = "on", .help = "a new order of rows each epoch"},
    {.key = "train_on",
     .kind = SN_OPTION_CHOICE,
     .choices = "assistant,all",
     .default_text = "assistant",
     .help = "which tokens of a chat carry loss"},
    {.key = "eval_fraction",
     .aliases = "val_size",
     .kind = SN_OPTION_FLOAT,
     .default_text = "0",
     .metavar = "R",
     .help = "share of rows held back for evaluation"},
    {.key = "eval_data",
     .by_rank = true,
     .aliases = "eval_dataset",
     .kind = SN_OPTION_STRING,
     .metavar = "FILE",
     .help = "evaluation rows from a file of their own"},
    {.key = "eval_steps", .kind = SN_OPTION_INT, .default_text = "0", .metavar = "N", .help = "evaluate every N steps; 0: at the end"},
    {.key = "logging_steps",
     .deepspeed = "steps_per_print",
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .help = "report every N steps"},
    {.key = "save_steps", .kind = SN_OPTION_INT, .default_text = "0", .metavar = "N", .help = "checkpoint every N steps; 0: at the end"},
    {.key = "save_total_limit", .kind = SN_OPTION_INT, .default_text = "2", .metavar = "N", .help = "checkpoints to keep"},
    {.key = "resume",
     .aliases = "resume_from_checkpoint",
     .kind = SN_OPTION_FLAG,
     .help = "go on from the newest whole checkpoint in --out"},
    {.key = "adapter", .by_rank = true, .kind = SN_OPTION_STRING, .metavar = "DIR", .help = "start from a PEFT adapter"},
    {.key = "deepspeed",
     .by_rank = true,
     .kind = SN_OPTION_STRING,
     .metavar = "FILE",
     .help = "DeepSpeed's JSON config: its keys as options"},
    {.key = "gguf", .kind = SN_OPTION_FLAG, .help = "write the result as GGUF too"}};
const sn_option_group sn_training_options = SN_OPTION_GROUP("Training", training_options);

static const sn_option machine_options[] = {
    {.key = "memory",
     .by_rank = true,
     .kind = SN_OPTION_BUDGET,
     .metavar = "M",
     .help = "budget: 8GiB, or device=24GiB,host=64GiB,disk=500GiB"},
    {.key = "fit",
     .kind = SN_OPTION_CHOICE,
     .choices = "off,on,any",
     .default_text = "off",
     .help = "make the cheapest change that fits: on: exact ones, then smaller micro-batches; any: forms too"},
    {.key = "device", .kind = SN_OPTION_CHOICE, .choices = "cpu,cpu-split,null", .default_text = "cpu", .help = "where to run"},
    {.key = "threads",
     .by_rank = true,
     .aliases = "t",
     .kind = SN_OPTION_INT,
     .default_text = "0",
     .metavar = "N",
     .help = "threads; 0: all processors"},
    {.key = "thread_ranks",
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .help = "data-parallel ranks as threads of this process"},
    {.key = "rank_timeout",
     .by_rank = true,
     .kind = SN_OPTION_FLOAT,
     .default_text = "600",
     .metavar = "SECONDS",
     .has_least = true,
     .help = "of ranks that are processes: silence after which all end, naming the silent one; 0: wait for ever"}};
const sn_option_group sn_machine_options = SN_OPTION_GROUP("Machine", machine_options);

const sn_option_group *const *sn_recipe_groups(size_t *count) {
    enum { MOST = 32 };
    static const sn_option_group *groups[MOST];
    size_t n = 0;
    groups[n++] = &sn_training_options;
    groups[n++] = &sn_machine_options;
    groups[n++] = &sn_cluster_options;
    groups[n++] = &sn_generation_options;
    groups[n++] = &sn_evaluation_options;
    groups[n++] = &sn_schedule_options;
    for (size_t i = 0; i < sn_n_passes; i++)
        if (sn_passes[i]->options.count) groups[n++] = &sn_passes[i]->options;
    *count = n;
    return groups;
}

sn_status sn_recipe_new(sn_options **out) {
    size_t n;
    const sn_option_group *const *groups = sn_recipe_groups(&n);
    return sn_options_open(groups, n, out);
}

static sn_status add_model_graph(sn_job *job, const char *name, sn_role role, const sn_model_config *config, const sn_model_shape *shape,
                                 const sn_parameters *parameters) {
    sn_graph *g = sn_job_add_graph(job, name, role);
    return g ? sn_model_build(g, config, shape, parameters) : SN_ERR_NO_MEMORY;
}

static sn_status finish(sn_status s, sn_job *job, sn_job **out) {
    if (s != SN_OK) sn_job_free(job);
    *out = s == SN_OK ? job : NULL;
    return s;
}

sn_status sn_job_for_training(const sn_model_config *config, const sn_parameters *parameters, const sn_training_shape *shape,
                              const sn_options *recipe, const sn_cluster *cluster, const char *stop_after, sn_job **out) {
    sn_job *job;
    sn_model_shape extents = {.tokens = shape->tokens};
    *out = NULL;
    SN_TRY(sn_job_new(&job));
    sn_status s = add_model_graph(job, "step", SN_ROLE_TRAIN, config, &extents, parameters);
    if (s == SN_OK && shape->evaluate) s = add_model_graph(job, "evaluate", SN_ROLE_EVALUATE, config, &extents, parameters);
    if (s == SN_OK) s = sn_passes_run(job, recipe, cluster, stop_after, NULL);
    return finish(s, job, out);
}

static void freeze(sn_job *job) {
    for (size_t i = 0; i < job->n_persistent; i++) job->persistent[i].trainable = false;
}

sn_status sn_job_for_evaluation(const sn_model_config *config, const sn_parameters *parameters, int64_t tokens, bool logits,
                                const sn_options *recipe, const sn_cluster *cluster, sn_job **out) {
    sn_job *job;
    sn_model_shape extents = {.tokens = tokens};
    *out = NULL;
    SN_TRY(sn_job_new(&job));
    sn_status s =
        add_model_graph(job, logits ? "logits" : "evaluate", logits ? SN_ROLE_LOGITS : SN_ROLE_EVALUATE, config, &extents, parameters);
    freeze(job);
    if (s == SN_OK) s = sn_passes_run(job, recipe, cluster, NULL, NULL);
    return finish(s, job, out);
}

sn_status sn_job_for_generation(const sn_model_config *config, const sn_parameters *parameters, const sn_model_shape *prompt,
                                const sn_model_shape *decode, const sn_options *recipe, const sn_cluster *cluster, sn_job **out) {
    sn_job *job;
    *out = NULL;
    SN_TRY(sn_job_new(&job));
    sn_status s = add_model_graph(job, "prompt", SN_ROLE_GENERATE, config, prompt, parameters);
    if (s == SN_OK) s = add_model_graph(job, "decode", SN_ROLE_GENERATE, config, decode, parameters);
    freeze(job);
    if (s == SN_OK) s = sn_passes_run(job, recipe, cluster, NULL, NULL);
    return finish(s, job, out);
}

void sn_initialise(const sn_persistent *e, sn_pid p, uint64_t seed, int64_t first, int64_t n, void *data) {
    enum { CHUNK = 256 };
    float buffer[CHUNK];
    const sn_dtype_info *form = &sn_dtypes[e->rest.form];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        for (int64_t i = 0, four; i < m; i += four) {
            int64_t element = first + at + i, from = element % 4;
            sn_rng4 r = sn_philox((uint32_t)seed, (uint32_t)(seed >> 32), 0, p, (uint32_t)(element / 4), (uint32_t)(element >> 34));
            four = 4 - from < m - i ? 4 - from : m - i;
            for (int64_t k = from; k < from + four; k++) {
                float pair[2], *to = &buffer[i + k - from];
                switch (e->source.init) {
                case SN_INIT_CONST: *to = e->source.scale; break;
                case SN_INIT_NORMAL:
                    sn_normal2(r.v[k & 2], r.v[(k & 2) + 1], pair);
                    *to = pair[k & 1] * e->source.scale;
                    break;
                case SN_INIT_UNIFORM: *to = (2 * sn_uniform(r.v[k]) - 1) * e->source.scale; break;
                default: *to = 0;
                }
            }
        }
        sn_from_f32(e->rest.form, buffer, m, (char *)data + (size_t)(at / form->block) * (size_t)form->bytes);
    }
}
