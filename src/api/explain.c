/* A job's graphs at any stage, and its programs, as text. */
#include <string.h>

#include "api/api.h"
#include "engine/train.h"

/* "after NAME", "after:NAME" and "NAME" are one; *found is model, program or the pass. */
static sn_status read_stage(const char *stage, const char **found) {
    const char *names[64];
    size_t n = 0;
    *found = NULL;
    if (!strncmp(stage, "after", 5) && (stage[5] == ' ' || stage[5] == ':')) stage += 6;
    names[n++] = "model";
    names[n++] = "program";
    for (size_t i = 0; i < sn_n_passes; i++) names[n++] = sn_passes[i]->name;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(stage, names[i])) {
            *found = names[i];
            return SN_OK;
        }
    sn_str all = {0};
    for (size_t i = 0; i < n; i++) sn_str_printf(&all, "%s%s", i ? ", " : "", names[i]);
    sn_status s = sn_fail(SN_ERR_USAGE, "stage: no stage '%s'; wanted one of %s", stage, all.failed ? "..." : all.data);
    sn_str_free(&all);
    return s;
}

/* The graphs as the model builds them, before any pass. */
static sn_status model_graphs(const snug_model *m, const sn_options *recipe, bool generate, sn_job **out) {
    sn_parameters parameters = sn_model_parameters((sn_model *)&m->model);
    int64_t context = sn_options_int(recipe, "ctx_size"), blocks = (context + 63) / 64;
    int64_t tokens = generate ? 1 : sn_options_int(recipe, "per_device_train_batch_size") * sn_options_int(recipe, "cutoff_len");
    sn_model_shape shape = {.tokens = tokens};
    if (generate)
        shape = (sn_model_shape){.tokens = 1,
                                 .cache_blocks = blocks,
                                 .block_size = 64,
                                 .table_blocks = blocks,
                                 .sequences = 1,
                                 .logit_rows = 1,
                                 .cache_form = SN_F16};
    if (tokens < 1 || context < 1)
        return sn_fail(SN_ERR_USAGE, "nothing to do: per_device_train_batch_size, cutoff_len and ctx_size must be positive");
    SN_TRY(sn_job_new(out));
    sn_graph *g = sn_job_add_graph(*out, generate ? "decode" : "step", generate ? SN_ROLE_GENERATE : SN_ROLE_TRAIN);
    return g ? sn_model_build(g, m->model.config, &shape, parameters.find ? &parameters : NULL) : SN_ERR_NO_MEMORY;
}

static sn_status print_job(const sn_job *job, const char *only, sn_str *text) {
    bool found = false;
    for (int k = 0; k < job->n_graphs; k++) {
        if (only && strcmp(job->graphs[k]->name, only)) continue;
        found = true;
        sn_graph_print(job->graphs[k], text);
    }
    return found ? SN_OK : sn_fail(SN_ERR_USAGE, "program: this job has no program '%s' at this stage", only ? only : "");
}

static sn_status print_plan(const sn_plan *plan, const char *only, sn_str *text) {
    bool found = false;
    for (int k = 0; k < plan->n_programs; k++) {
        if (only && strcmp(plan->programs[k].program.name, only)) continue;
        found = true;
        sn_program_print(&plan->programs[k].program, text);
    }
    return found ? SN_OK : sn_fail(SN_ERR_USAGE, "program: this job has no program '%s'", only ? only : "");
}

/* Generation's graphs after one pass: of the decode program. */
static sn_status generation_after(const snug_model *m, const sn_options *recipe, const char *pass, sn_session *s) {
    SN_TRY(sn_session_machine(s, recipe));
    SN_TRY(model_graphs(m, recipe, true, &s->job));
    for (size_t i = 0; i < s->job->n_persistent; i++) s->job->persistent[i].trainable = false;
    return sn_passes_run(s->job, recipe, &s->cluster, pass, NULL);
}

static sn_status explain(snug_model *m, const snug_options *o, const sn_options *recipe, sn_session *s, sn_str *text) {
    const char *stage, *only = snug_options_text(o, "program");
    bool generate = !strcmp(sn_options_string(recipe, "for"), "generate");
    SN_TRY(read_stage(sn_options_string(recipe, "stage"), &stage));
    if (only && !*only) only = NULL;
    if (generate) SN_TRY(sn_refuse_ranks(recipe));
    s->model = &m->model;
    if (!strcmp(stage, "model")) {
        SN_TRY(model_graphs(m, recipe, generate, &s->job));
        return print_job(s->job, only, text);
    }
    if (!strcmp(stage, "program")) {
        sn_generator g = {0};
        SN_TRY(generate ? sn_generator_plan(&m->model, recipe, sn_adapter_of(o), &g) : sn_train_plan(&m->model, recipe, NULL, NULL, s));
        if (generate) *s = g.session;
        return print_plan(s->plan, only, text);
    }
    SN_TRY(generate ? generation_after(m, recipe, stage, s) : sn_train_plan(&m->model, recipe, NULL, stage, s));
    return print_job(s->job, only, text);
}

snug_status snug_explain(snug_model *m, const snug_options *o, char **out) {
    sn_session session = {0};
    sn_options *recipe = NULL;
    sn_str text = {0};
    const char *purpose = snug_options_text(o, "for");
    sn_status s = sn_options_copy(o->store, &recipe);
    if (s == SN_OK && purpose && !strcmp(purpose, "generate")) s = sn_generation_defaults(recipe);
    else if (s == SN_OK) s = sn_take_adapter(o, &recipe);
    if (s == SN_OK) s = explain(m, o, recipe, &session, &text);
    if (s == SN_OK) s = sn_hand_out(&text, out);
    sn_str_free(&text);
    sn_session_close(&session);
    sn_options_close(recipe);
    return (snug_status)s;
}
