/* Perplexity, logits and speed. */
#include <math.h>
#include <stdio.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/system.h"
#include "engine/evaluate.h"

static sn_status data_ids(snug_model *m, const snug_options *o, sn_ids *ids) {
    const char *path = snug_options_text(o, "data");
    SN_TRY(sn_need_weights(&m->model));
    if (!path || !*path) return sn_fail(SN_ERR_USAGE, "data: no file is named");
    return sn_file_ids(m, path, ids);
}

snug_status snug_eval(snug_model *m, const snug_options *o, snug_perplexity *out) {
    sn_ids ids = {0};
    sn_perplexity p = {0};
    int64_t ctx = snug_options_integer(o, "ctx_size"), stride = snug_options_integer(o, "stride");
    double start = sn_now();
    sn_status s = data_ids(m, o, &ids);
    if (s == SN_OK) {
        int32_t bos = sn_tokenizer_bos(m->model.tokenizer);
        if (!ids.size || ids.data[0] != bos) bos = -1; /* a model that begins texts with BOS begins windows with it */
        s = sn_evaluate_perplexity(&m->model, o->store, sn_adapter_of(o), ids.data, (int64_t)ids.size, ctx, stride, bos, &p);
    }
    if (s == SN_OK) *out = (snug_perplexity){p.perplexity, p.nll, p.tokens, p.windows, ctx, stride, sn_now() - start};
    sn_ids_free(&ids);
    return (snug_status)s;
}

snug_status snug_eval_logits(snug_model *m, const snug_options *o, const char *path, int64_t *tokens) {
    sn_ids ids = {0};
    sn_status s = data_ids(m, o, &ids);
    if (s == SN_OK) s = sn_evaluate_dump_logits(&m->model, o->store, sn_adapter_of(o), ids.data, (int64_t)ids.size, path);
    if (s == SN_OK && tokens) *tokens = (int64_t)ids.size;
    sn_ids_free(&ids);
    return (snug_status)s;
}

/* ---- Speed ---- */

static sn_status feed_once(sn_generator *g, const int32_t *ids, int64_t n, int64_t step, double *seconds) {
    float *logits;
    sn_generator_rewind(g, 0);
    double start = sn_now();
    for (int64_t i = 0; i < n; i += step) SN_TRY(sn_generator_feed(g, ids + i, step < n - i ? step : n - i, &logits));
    *seconds = sn_now() - start;
    return SN_OK;
}

/* Tokens a second over the repetitions, after one that does not count. */
static sn_status measure(sn_generator *g, const int32_t *ids, int64_t n, int64_t step, int64_t repetitions, double *mean,
                         double *deviation) {
    double sum = 0, squares = 0, seconds;
    *mean = *deviation = 0;
    if (!n) return SN_OK;
    SN_TRY(feed_once(g, ids, step == 1 && n > 8 ? 8 : n, step, &seconds));
    for (int64_t r = 0; r < repetitions; r++) {
        SN_TRY(feed_once(g, ids, n, step, &seconds));
        double speed = (double)n / seconds;
        sum += speed;
        squares += speed * speed;
    }
    *mean = sum / (double)repetitions;
    double variance = squares / (double)repetitions - *mean * *mean;
    *deviation = repetitions > 1 && variance > 0 ? sqrt(variance * (double)repetitions / (double)(repetitions - 1)) : 0;
    return SN_OK;
}

static sn_status bench(snug_model *m, const sn_options *recipe, const char *adapter, snug_bench_result *r) {
    int64_t n = r->prompt_tokens > r->decode_tokens ? r->prompt_tokens : r->decode_tokens;
    sn_generator g;
    SN_TRY(sn_generator_open(&m->model, recipe, adapter, &g));
    int32_t *ids = sn_alloc((size_t)n * sizeof *ids);
    sn_status s = ids ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %lld ids", (long long)n);
    for (int64_t i = 0; ids && i < n; i++) ids[i] = (int32_t)((i * 7919 + 13) % m->model.config->vocab_size);
    if (s == SN_OK) s = measure(&g, ids, r->prompt_tokens, r->prompt_tokens, r->repetitions, &r->prompt_tokens_per_s, &r->prompt_deviation);
    if (s == SN_OK) s = measure(&g, ids, r->decode_tokens, 1, r->repetitions, &r->decode_tokens_per_s, &r->decode_deviation);
    sn_free(ids);
    sn_generator_close(&g);
    return s;
}

snug_status snug_bench(snug_model *m, const snug_options *o, snug_bench_result *out) {
    snug_bench_result r = {.prompt_tokens = snug_options_integer(o, "prompt"),
                           .decode_tokens = snug_options_integer(o, "decode"),
                           .repetitions = snug_options_integer(o, "repetitions")};
    int64_t n = r.prompt_tokens > r.decode_tokens ? r.prompt_tokens : r.decode_tokens;
    sn_options *recipe = NULL;
    char context[32];
    if (n < 1 || n > 1 << 24)
        return (snug_status)sn_fail(SN_ERR_USAGE, "prompt and decode are %lld at most, wanted 1 to %d tokens", (long long)n, 1 << 24);
    snprintf(context, sizeof context, "%lld", (long long)n);
    sn_status s = sn_need_weights(&m->model);
    if (s == SN_OK) s = sn_options_copy(o->store, &recipe);
    if (s == SN_OK) s = sn_options_set(recipe, "ctx_size", context, SN_FROM_COMMAND_LINE, "ctx_size");
    if (s == SN_OK) s = bench(m, recipe, sn_adapter_of(o), &r);
    sn_options_close(recipe);
    if (s == SN_OK) *out = r;
    return (snug_status)s;
}
