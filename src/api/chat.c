/* Conversations: history as messages, rendered anew by the model's template for each answer; the KV cache keeps what the new
 * text has in common with the last. */
#include <string.h>
#include <utf8proc.h>

#include "api/session.h"
#include "base/mem.h"

sn_status sn_token_text(const sn_tokenizer *t, int32_t id, sn_pool *pool, const char **out) {
    size_t n = 0;
    const char *text = id >= 0 ? sn_tokenizer_token(t, id, &n) : NULL;
    *out = NULL;
    if (!text) return SN_OK;
    char *copy = sn_pool_alloc(pool, n + 1);
    if (!copy) return sn_fail(SN_ERR_NO_MEMORY, "cannot copy a token");
    memcpy(copy, text, n);
    *out = copy;
    return SN_OK;
}

sn_status sn_chat_prepare(snug_session *s) {
    const sn_model *m = &s->model->model;
    if (!m->chat_template) return SN_OK;
    SN_TRY(sn_chat_template_parse(m->chat_template, strlen(m->chat_template), &s->template));
    SN_TRY(sn_encoder_of_tokenizer(m->tokenizer, &s->encoder));
    SN_TRY(sn_token_text(m->tokenizer, sn_tokenizer_bos(m->tokenizer), &s->pool, &s->bos));
    return sn_token_text(m->tokenizer, sn_tokenizer_eos(m->tokenizer), &s->pool, &s->eos);
}

void sn_chat_close(snug_session *s) {
    if (s->template) sn_chat_template_free(s->template);
    sn_str_free(&s->history);
    sn_pool_free(&s->pool);
}

/* Bytes that are no UTF-8 (an answer cut short, a user's paste) become U+FFFD: messages are JSON. */
static void add_message(sn_str *to, const char *role, const char *text, size_t n) {
    sn_str clean = {0};
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(n - i), &c);
        if (length > 0) sn_str_append(&clean, text + i, (size_t)length);
        else sn_str_add(&clean, "\xef\xbf\xbd");
        i += length > 0 ? (size_t)length : 1;
    }
    sn_str_printf(to, ", {\"role\": \"%s\", \"content\": ", role);
    sn_str_json(to, clean.data ? clean.data : "", clean.size);
    sn_str_char(to, '}');
    if (clean.failed) to->failed = true;
    sn_str_free(&clean);
}

/* The whole conversation as the ids of a prompt. */
static sn_status render(snug_session *s, sn_ids *ids) {
    sn_str messages = {0};
    sn_chat_text text = {0};
    if (s->system) add_message(&messages, "system", s->system, strlen(s->system));
    sn_str_append(&messages, s->history.data, s->history.size);
    sn_str_add(&messages, "]");
    sn_status status = messages.failed || s->history.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the conversation") : SN_OK;
    if (status == SN_OK) {
        messages.data[0] = '['; /* in the place of the first comma */
        sn_chat_input in = {.messages = messages.data, .bos_token = s->bos, .eos_token = s->eos, .add_generation_prompt = true};
        status = sn_chat_template_render(s->template, &in, &text);
    }
    if (status == SN_OK) status = sn_encode_chat(&s->encoder, &text, 0, text.text.size, ids);
    sn_chat_text_free(&text);
    sn_str_free(&messages);
    return status;
}

snug_status snug_chat(snug_session *s, const char *text, size_t n, snug_piece_fn on_piece, void *context, snug_usage *usage) {
    sn_ids ids = {0};
    sn_str answer = {0};
    snug_usage local;
    sn_answer a = {.on_piece = on_piece, .context = context, .usage = usage ? usage : &local, .text = &answer};
    size_t before = s->history.size;
    if (!s->template)
        return (snug_status)sn_fail(SN_ERR_UNSUPPORTED, "%s has no chat template: use generate, or a model that was tuned to chat",
                                    s->model->model.path);
    add_message(&s->history, "user", text, n);
    sn_status status = render(s, &ids);
    if (status == SN_OK) status = sn_session_answer(s, &ids, &a);
    if (status == SN_OK && answer.failed) status = sn_fail(SN_ERR_NO_MEMORY, "cannot allocate an answer");
    if (status == SN_OK) {
        add_message(&s->history, "assistant", answer.data ? answer.data : "", answer.size);
    } else if (s->history.data) {
        s->history.size = before;
        s->history.data[before] = 0;
        s->history.failed = false;
    }
    sn_str_free(&answer);
    sn_ids_free(&ids);
    return (snug_status)status;
}

void snug_chat_reset(snug_session *s) { sn_str_clear(&s->history); }
