#include "engine/generate.h"

#include <stdio.h>
#include <string.h>

#include "engine/budget.h"
#include "engine/peft.h"

enum { BLOCK = 64 };

static const sn_option generation_options[] = {
    {.key = "ctx_size",
     .aliases = "c,max_model_len",
     .kind = SN_OPTION_INT,
     .default_text = "2048",
     .metavar = "N",
     .help = "tokens that the KV cache holds"},
    {.key = "kv_cache_dtype",
     .aliases = "cache_type",
     .kind = SN_OPTION_CHOICE,
     .choices = "f32,f16,bf16",
     .default_text = "f16",
     .help = "form of the KV cache"},
    {.key = "max_tokens",
     .aliases = "n,n_predict",
     .kind = SN_OPTION_INT,
     .default_text = "256",
     .metavar = "N",
     .help = "tokens to generate at most"},
    {.key = "temperature",
     .aliases = "temp",
     .kind = SN_OPTION_FLOAT,
     .default_text = "0",
     .metavar = "T",
     .help = "0: always the likeliest token"},
    {.key = "top_k", .kind = SN_OPTION_INT, .default_text = "0", .metavar = "K", .help = "sample among the K likeliest; 0: all"},
    {.key = "top_p", .kind = SN_OPTION_FLOAT, .default_text = "1", .metavar = "P", .help = "sample among the likeliest that sum to P"},
    {.key = "min_p", .kind = SN_OPTION_FLOAT, .default_text = "0", .metavar = "P", .help = "drop tokens below P times the likeliest"},
    {.key = "repetition_penalty",
     .aliases = "repeat_penalty",
     .kind = SN_OPTION_FLOAT,
     .default_text = "1",
     .metavar = "R",
     .help = "above 1: seen tokens become less likely"}};
const sn_option_group sn_generation_options = SN_OPTION_GROUP("Generation", generation_options);

static sn_status build(sn_model *model, const sn_options *recipe, const char *adapter, sn_generator *g) {
    static const int64_t sizes[] = {1, 16, 128, 512};
    sn_dtype form;
    g->session.model = model;
    SN_TRY(sn_session_machine(&g->session, recipe));
    if (g->session.ranks != 1) return sn_fail(SN_ERR_UNSUPPORTED, "generation runs on one rank");
    g->context = sn_options_int(recipe, "ctx_size");
    if (g->context < 1) return sn_fail(SN_ERR_USAGE, "ctx_size is %lld, wanted at least 1", (long long)g->context);
    if (!sn_dtype_by_name(sn_options_string(recipe, "kv_cache_dtype"), &form)) return sn_fail(SN_ERR_USAGE, "unknown kv_cache_dtype");
    int64_t blocks = (g->context + BLOCK - 1) / BLOCK;
    sn_parameters parameters = sn_model_parameters(model);
    sn_job *job;
    SN_TRY(sn_job_new(&job));
    g->session.job = job;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (i > 0 && sizes[i - 1] >= g->context) break;
        char name[32];
        snprintf(name, sizeof name, sizes[i] == 1 ? "decode" : "prompt_%lld", (long long)sizes[i]);
        sn_graph *graph = sn_job_add_graph(job, name, SN_ROLE_GENERATE);
        if (!graph) return SN_ERR_NO_MEMORY;
        sn_model_shape shape = {.tokens = sizes[i],
                                .cache_blocks = blocks,
                                .block_size = BLOCK,
                                .table_blocks = blocks,
                                .sequences = 1,
                                .logit_rows = 1,
                                .cache_form = form};
        SN_TRY(sn_model_build(graph, model->config, &shape, parameters.find ? &parameters : NULL));
        g->buckets[g->n_buckets].program = job->n_graphs - 1;
        g->buckets[g->n_buckets++].tokens = sizes[i];
    }
    for (size_t i = 0; i < job->n_persistent; i++) job->persistent[i].trainable = false;
    sn_options *effective = NULL;
    if (adapter) SN_TRY(sn_adapter_recipe(adapter, recipe, &effective));
    sn_status s = sn_passes_run(job, effective ? effective : recipe, &g->session.cluster, NULL, NULL);
    sn_options_close(effective);
    SN_TRY(s);
    return sn_session_plan(&g->session);
}

sn_status sn_generator_plan(sn_model *model, const sn_options *recipe, const char *adapter, sn_generator *g) {
    *g = (sn_generator){0};
    sn_status s = build(model, recipe, adapter, g);
    if (s != SN_OK) sn_generator_close(g);
    return s;
}

static void fill_constants(sn_generator *g) {
    for (int b = 0; b < g->n_buckets; b++)
        for (int slot = 0; slot < g->session.plan->input_slots; slot++) {
            const sn_io_slot *io;
            int32_t *table = sn_run_io(g->session.run, g->buckets[b].program, "block_table", slot, &io);
            for (int64_t i = 0; table && i < io->shape.d[1]; i++) table[i] = (int32_t)i; /* one sequence owns the cache */
        }
}

sn_status sn_generator_open(sn_model *model, const sn_options *recipe, const char *adapter, sn_generator *g) {
    SN_TRY(sn_generator_plan(model, recipe, adapter, g));
    sn_status s = sn_session_check_budget(&g->session, recipe);
    if (s == SN_OK) s = sn_session_open(&g->session, recipe, adapter, NULL);
    if (s == SN_OK) fill_constants(g);
    else sn_generator_close(g);
    return s;
}

void sn_generator_close(sn_generator *g) { sn_session_close(&g->session); }

static sn_status feed_bucket(sn_generator *g, int bucket, const int32_t *ids, int64_t n, float **logits) {
    sn_run *run = g->session.run;
    int program = g->buckets[bucket].program;
    int32_t *in_ids = sn_run_io(run, program, "ids", 0, NULL), *positions = sn_run_io(run, program, "positions", 0, NULL);
    int32_t *sequence = sn_run_io(run, program, "sequence", 0, NULL), *slots = sn_run_io(run, program, "slots", 0, NULL);
    int32_t *rows = sn_run_io(run, program, "rows", 0, NULL);
    for (int64_t t = 0; t < g->buckets[bucket].tokens; t++) {
        bool used = t < n;
        in_ids[t] = used ? ids[t] : 0;
        positions[t] = used ? (int32_t)(g->position + t) : 0;
        sequence[t] = used ? 0 : -1;
        slots[t] = used ? (int32_t)(g->position + t) : -1;
    }
    rows[0] = (int32_t)n - 1;
    SN_TRY(sn_run_program(run, program, 0));
    g->position += n;
    *logits = sn_run_io(run, program, "logits", 0, NULL);
    return SN_OK;
}

sn_status sn_generator_feed(sn_generator *g, const int32_t *ids, int64_t n, float **logits) {
    if (n < 1) return sn_fail(SN_ERR_DATA, "no tokens to feed");
    if (n > g->context - g->position)
        return sn_fail(SN_ERR_DATA, "%lld tokens do not fit the context of %lld (%lld used): raise --ctx-size", (long long)n,
                       (long long)g->context, (long long)g->position);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->session.model->config->vocab_size)
            return sn_fail(SN_ERR_DATA, "token %d is outside the vocabulary", ids[i]);
    while (n > 0) {
        int bucket = 0;
        while (bucket + 1 < g->n_buckets && g->buckets[bucket].tokens < n) bucket++;
        int64_t take = n < g->buckets[bucket].tokens ? n : g->buckets[bucket].tokens;
        SN_TRY(feed_bucket(g, bucket, ids, take, logits));
        ids += take;
        n -= take;
    }
    return SN_OK;
}

void sn_generator_rewind(sn_generator *g, int64_t position) {
    if (position < g->position) g->position = position;
}
