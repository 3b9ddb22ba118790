/* Sessions: text generation and conversations over one KV cache. */
#include "api/session.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"

static sn_status read_sampling(snug_session *s) {
    const sn_options *r = s->recipe;
    s->max_tokens = sn_options_int(r, "max_tokens");
    s->sampling = (sn_sampling){.temperature = (float)sn_options_float(r, "temperature"),
                                .top_p = (float)sn_options_float(r, "top_p"),
                                .min_p = (float)sn_options_float(r, "min_p"),
                                .repetition_penalty = (float)sn_options_float(r, "repetition_penalty"),
                                .seed = (uint64_t)sn_options_int(r, "seed")};
    int64_t top_k = sn_options_int(r, "top_k");
    if (top_k < 0 || top_k > INT32_MAX) return sn_fail(SN_ERR_USAGE, "top_k is %lld, wanted 0 or more", (long long)top_k);
    if (s->max_tokens < 0) return sn_fail(SN_ERR_USAGE, "max_tokens is %lld, wanted 0 or more", (long long)s->max_tokens);
    s->sampling.top_k = (int32_t)top_k;
    return sn_sampling_check(&s->sampling);
}

static sn_status open_session(snug_session *s, const snug_options *o) {
    sn_model *m = &s->model->model;
    SN_TRY(sn_need_weights(m));
    SN_TRY(sn_need_tokenizer(m));
    SN_TRY(sn_options_copy(o->store, &s->recipe));
    SN_TRY(read_sampling(s));
    const char *system = snug_options_text(o, "system");
    if (system && *system) s->system = sn_strdup(system);
    s->workspace = sn_alloc(sn_sampler_workspace(m->config->vocab_size));
    if (!s->workspace || (system && *system && !s->system)) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a session");
    SN_TRY(sn_chat_prepare(s));
    SN_TRY(sn_generator_open(m, s->recipe, sn_adapter_of(o), &s->generator));
    s->open = true;
    return SN_OK;
}

snug_status snug_session_open(snug_model *m, const snug_options *o, snug_session **out) {
    snug_session *s = sn_alloc_zero(1, sizeof *s);
    if (!s) return (snug_status)sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a session");
    s->model = m;
    sn_status status = open_session(s, o);
    if (status == SN_OK) *out = s;
    else snug_session_close(s);
    return (snug_status)status;
}

void snug_session_close(snug_session *s) {
    if (!s) return;
    if (s->open) sn_generator_close(&s->generator);
    sn_chat_close(s);
    sn_options_close(s->recipe);
    sn_ids_free(&s->cached);
    sn_free(s->workspace);
    sn_free(s->system);
    sn_free(s);
}

void snug_session_bill(const snug_session *s, snug_bill *out) { sn_bill_out(&s->generator.session, s->recipe, out); }

/* Feeds what the cache does not hold yet. *stopped: the callback ended it. */
static sn_status feed_prompt(snug_session *s, const sn_ids *ids, const sn_answer *a, float **logits, bool *stopped) {
    enum { PART = 512 };
    size_t same = 0;
    while (same < s->cached.size && same + 1 < ids->size && s->cached.data[same] == ids->data[same]) same++;
    sn_generator_rewind(&s->generator, (int64_t)same);
    s->cached.size = same;
    a->usage->cached_tokens = (int64_t)same;
    for (size_t at = same; at < ids->size && !*stopped; at += PART) {
        size_t n = ids->size - at < PART ? ids->size - at : PART;
        SN_TRY(sn_generator_feed(&s->generator, ids->data + at, (int64_t)n, logits));
        for (size_t i = 0; i < n; i++) SN_TRY(sn_ids_push(&s->cached, ids->data[at + i]));
        if (a->on_piece && !a->on_piece(a->context, "", 0)) *stopped = true;
    }
    return SN_OK;
}

/* Hands on the text that `piece` gathered. */
static bool emit(const sn_answer *a, sn_str *piece) {
    bool go_on = true;
    if (a->text && piece->size) sn_str_append(a->text, piece->data, piece->size);
    if (a->on_piece && piece->size) go_on = a->on_piece(a->context, piece->data, piece->size);
    sn_str_clear(piece);
    return go_on;
}

static sn_status decode(snug_session *s, float *logits, const sn_answer *a) {
    const sn_tokenizer *t = s->model->model.tokenizer;
    sn_detokenizer d = {.t = t, .flags = SN_TOKENIZER_SKIP_SPECIAL, .started = a->continues};
    sn_str piece = {0};
    sn_status status = SN_OK;
    a->usage->finish = SNUG_FINISH_LENGTH;
    for (int64_t i = 0; i < s->max_tokens; i++) {
        int32_t id = sn_sampler_draw(&s->sampling, logits, s->model->model.config->vocab_size, s->cached.data, (int64_t)s->cached.size,
                                     s->drawn++, s->workspace);
        if (id < 0) {
            status = sn_fail(SN_ERR_NUMERIC, "no logit is a number: the model's output is broken");
            break;
        }
        a->usage->completion_tokens++;
        if (sn_tokenizer_is_eos(t, id)) {
            a->usage->finish = SNUG_FINISH_STOP;
            break;
        }
        SN_TRY_GOTO(status, done, sn_detokenizer_add(&d, id, &piece));
        if (!emit(a, &piece)) {
            a->usage->finish = SNUG_FINISH_CALLER;
            break;
        }
        if (i + 1 == s->max_tokens) break;
        if (s->generator.position >= s->generator.context) {
            a->usage->finish = SNUG_FINISH_CONTEXT;
            break;
        }
        SN_TRY_GOTO(status, done, sn_generator_feed(&s->generator, &id, 1, &logits));
        SN_TRY_GOTO(status, done, sn_ids_push(&s->cached, id));
    }
    if (status == SN_OK) status = sn_detokenizer_finish(&d, &piece);
    if (status == SN_OK) emit(a, &piece);
done:
    sn_str_free(&piece);
    return status;
}

sn_status sn_session_answer(snug_session *s, const sn_ids *ids, const sn_answer *a) {
    float *logits = NULL;
    bool stopped = false;
    *a->usage = (snug_usage){.prompt_tokens = (int64_t)ids->size, .finish = SNUG_FINISH_CALLER};
    if (!ids->size) return sn_fail(SN_ERR_USAGE, "the prompt is empty");
    if ((int64_t)ids->size > s->generator.context)
        return sn_fail(SN_ERR_USAGE, "the prompt has %zu tokens, the context holds %lld: raise ctx_size", ids->size,
                       (long long)s->generator.context);
    double start = sn_now();
    s->drawn = 0;
    SN_TRY(feed_prompt(s, ids, a, &logits, &stopped));
    double fed = sn_now();
    a->usage->prompt_seconds = fed - start;
    if (stopped) return SN_OK;
    sn_status status = decode(s, logits, a);
    a->usage->decode_seconds = sn_now() - fed;
    return status;
}

snug_status snug_generate(snug_session *s, const char *text, size_t n, snug_piece_fn on_piece, void *context, snug_usage *usage) {
    sn_ids ids = {0};
    snug_usage local;
    sn_answer a = {.on_piece = on_piece, .context = context, .usage = usage ? usage : &local, .continues = true};
    sn_status status = sn_tokenizer_encode(s->model->model.tokenizer, text, n, SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL, &ids);
    int32_t bos = sn_tokenizer_bos(s->model->model.tokenizer);
    if (status == SN_OK && !ids.size && bos >= 0) status = sn_ids_push(&ids, bos); /* nothing to continue: a text from its beginning */
    if (status == SN_OK) status = sn_session_answer(s, &ids, &a);
    sn_ids_free(&ids);
    return (snug_status)status;
}
