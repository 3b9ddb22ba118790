#include "engine/evaluate.h"

#include <math.h>
#include <string.h>

#include "engine/budget.h"
#include "engine/peft.h"
#include "io/safetensors.h"

static const sn_option evaluation_options[] = {
    {.key = "data", .by_rank = true, .aliases = "dataset,f,file", .kind = SN_OPTION_STRING, .metavar = "FILE", .help = "text or JSONL"},
    {.key = "stride",
     .kind = SN_OPTION_INT,
     .default_text = "0",
     .metavar = "N",
     .help = "of sliding windows; 0: whole windows, second halves count (llama.cpp)"},
    {.key = "dump_logits", .kind = SN_OPTION_STRING, .metavar = "FILE", .help = "write logits [tokens, vocab] as safetensors"}};
const sn_option_group sn_evaluation_options = SN_OPTION_GROUP("Evaluation", evaluation_options);

sn_status sn_evaluator_open(sn_model *model, const sn_options *recipe, const char *adapter, int64_t tokens, bool logits, sn_session *s) {
    sn_options *effective = NULL;
    sn_parameters parameters = sn_model_parameters(model);
    *s = (sn_session){.model = model};
    if (adapter && *adapter) SN_TRY(sn_adapter_recipe(adapter, recipe, &effective));
    sn_status status = sn_session_machine(s, recipe);
    if (status == SN_OK)
        status = sn_job_for_evaluation(model->config, parameters.find ? &parameters : NULL, tokens, logits, effective ? effective : recipe,
                                       &s->cluster, &s->job);
    sn_options_close(effective);
    if (status == SN_OK) status = sn_session_plan(s);
    if (status == SN_OK) status = sn_session_check_budget(s, recipe);
    if (status == SN_OK) status = sn_session_open(s, recipe, adapter, NULL);
    if (status != SN_OK) sn_session_close(s);
    return status;
}

void sn_fill_sequence(sn_run *run, int program, int slot, const int32_t *ids, int64_t n, int64_t T) {
    int32_t *in = sn_run_io(run, program, "ids", slot, NULL), *positions = sn_run_io(run, program, "positions", slot, NULL);
    int32_t *starts = sn_run_io(run, program, "seq_start", slot, NULL);
    for (int64_t t = 0; t < T; t++) {
        in[t] = t < n ? ids[t] : 0;
        if (positions) positions[t] = t < n ? (int32_t)t : 0;
        starts[t] = t < n ? 0 : (int32_t)t;
    }
}

static sn_status check_ids(const sn_model *m, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->config->vocab_size) return sn_fail(SN_ERR_DATA, "token %d is outside the vocabulary", ids[i]);
    return SN_OK;
}

/* Adds the losses of one window's labels. */
static sn_status add_window(sn_session *s, const int32_t *ids, int64_t n, int64_t ctx, int64_t first, int32_t bos, sn_perplexity *out) {
    sn_fill_sequence(s->run, 0, 0, ids, n, ctx);
    int32_t *in = sn_run_io(s->run, 0, "ids", 0, NULL), *labels = sn_run_io(s->run, 0, "labels", 0, NULL);
    float *scale = sn_run_io(s->run, 0, "scale", 0, NULL);
    if (bos >= 0) in[0] = bos;
    scale[0] = 1;
    for (int64_t t = 0; t < ctx; t++) labels[t] = t >= first && t + 1 < n ? ids[t + 1] : -100;
    double *total = sn_run_persistent(s->run, sn_job_find(s->job, "loss"));
    memset(total, 0, 2 * sizeof *total);
    SN_TRY(sn_run_program(s->run, 0, 0));
    out->nll += total[0];
    out->tokens += (int64_t)total[1];
    out->windows++;
    return SN_OK;
}

sn_status sn_evaluate_perplexity(sn_model *model, const sn_options *recipe, const char *adapter, const int32_t *ids, int64_t n, int64_t ctx,
                                 int64_t stride, int32_t bos, sn_perplexity *out) {
    sn_session s;
    *out = (sn_perplexity){0};
    if (ctx < 4) return sn_fail(SN_ERR_USAGE, "ctx_size is %lld, wanted at least 4", (long long)ctx);
    if (stride < 0 || stride > ctx)
        return sn_fail(SN_ERR_USAGE, "stride is %lld, wanted 0 to ctx_size (%lld)", (long long)stride, (long long)ctx);
    if (stride == 0 ? n < ctx : n < 2)
        return sn_fail(SN_ERR_DATA, "the text has %lld tokens, a window is %lld", (long long)n, (long long)ctx);
    SN_TRY(check_ids(model, ids, n));
    SN_TRY(sn_evaluator_open(model, recipe, adapter, ctx, false, &s));
    sn_status status = SN_OK;
    if (stride == 0) {
        for (int64_t at = 0; status == SN_OK && at + ctx <= n; at += ctx) status = add_window(&s, ids + at, ctx, ctx, ctx / 2, bos, out);
    } else {
        int64_t seen = 1; /* tokens up to here were predicted, or are the first */
        for (int64_t at = 0; status == SN_OK && seen < n; at += stride) {
            int64_t m = n - at < ctx ? n - at : ctx;
            status = add_window(&s, ids + at, m, ctx, seen - at - 1, -1, out);
            seen = at + m;
        }
    }
    sn_session_close(&s);
    SN_TRY(status);
    out->nll /= (double)out->tokens;
    out->perplexity = exp(out->nll);
    return SN_OK;
}

sn_status sn_evaluate_dump_logits(sn_model *model, const sn_options *recipe, const char *adapter, const int32_t *ids, int64_t n,
                                  const char *path) {
    sn_session s;
    sn_st_writer w;
    int64_t vocab = model->config->vocab_size;
    sn_shape shape = sn_shape_of(n, vocab);
    if (n < 1) return sn_fail(SN_ERR_DATA, "no tokens");
    SN_TRY(check_ids(model, ids, n));
    SN_TRY(sn_evaluator_open(model, recipe, adapter, n, true, &s));
    sn_fill_sequence(s.run, 0, 0, ids, n, n);
    sn_status status = sn_run_program(s.run, 0, 0);
    if (status == SN_OK) status = sn_st_write_open(path, &w);
    if (status == SN_OK) {
        status = sn_st_add_tensor(&w, "logits", SN_F32, &shape);
        if (status == SN_OK) status = sn_st_write_begin(&w);
        if (status == SN_OK) status = sn_st_write(&w, 0, 0, sn_run_io(s.run, 0, "logits", 0, NULL), (size_t)(n * vocab) * sizeof(float));
        if (status == SN_OK) status = sn_st_write_finish(&w);
        sn_st_write_close(&w);
    }
    sn_session_close(&s);
    return status;
}
