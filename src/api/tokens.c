/* Text to token ids and back, and the rows of files. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/file.h"
#include "base/mem.h"
#include "io/chat_template.h"
#include "io/encoder.h"

enum { MOST_TEXT = 1 << 30 };

snug_status snug_tokenize(const snug_model *m, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids) {
    sn_ids out = {0};
    unsigned inner =
        (flags & SNUG_TOKENIZE_SPECIAL ? SN_TOKENIZER_ADD_SPECIAL : 0) | (flags & SNUG_TOKENIZE_PARSE ? SN_TOKENIZER_PARSE_SPECIAL : 0);
    sn_status s = sn_need_tokenizer(&m->model);
    if (s == SN_OK) s = sn_tokenizer_encode(m->model.tokenizer, text, n, inner, &out);
    if (s != SN_OK) {
        sn_ids_free(&out);
        return (snug_status)s;
    }
    *ids = out.data;
    *n_ids = out.size;
    return SNUG_OK;
}

snug_status snug_detokenize(const snug_model *m, const int32_t *ids, size_t n, char **text, size_t *size) {
    sn_str out = {0};
    sn_status s = sn_need_tokenizer(&m->model);
    if (s == SN_OK) s = sn_tokenizer_decode(m->model.tokenizer, ids, n, 0, &out);
    size_t bytes = out.size;
    if (s == SN_OK) s = sn_hand_out(&out, text);
    if (s == SN_OK) *size = bytes;
    sn_str_free(&out);
    return (snug_status)s;
}

/* ---- Rows of a file ---- */

typedef struct rows {
    const sn_model *model;
    const char *path;
    int64_t line;
    sn_chat_template *template; /* NULL: messages are not wanted */
    sn_encoder encoder;
    const char *bos, *eos;
    sn_pool pool;
    sn_ids ids;
} rows;

static sn_status encode_text(rows *r, const char *text, size_t n) {
    return sn_tokenizer_encode(r->model->tokenizer, text, n, SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL, &r->ids);
}

static sn_status encode_messages(rows *r, const json_t *messages, const json_t *tools) {
    sn_chat_text text = {0};
    sn_chat_input in = {.messages_value = messages, .tools_value = tools, .bos_token = r->bos, .eos_token = r->eos};
    sn_status s = sn_chat_template_render(r->template, &in, &text);
    if (s == SN_OK) s = sn_encode_chat(&r->encoder, &text, 0, text.text.size, &r->ids);
    sn_chat_text_free(&text);
    return s;
}

static sn_status take_ids(rows *r, const json_t *ids) {
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return sn_fail(SN_ERR_DATA, "input_ids[%zu] is no token id", i);
        SN_TRY(sn_ids_push(&r->ids, (int32_t)json_integer_value(id)));
    }
    return SN_OK;
}

static sn_status encode_row(rows *r, const json_t *row) {
    const json_t *text = json_object_get(row, "text"), *messages = json_object_get(row, "messages"),
                 *ids = json_object_get(row, "input_ids");
    if (json_is_array(messages) && r->template) return encode_messages(r, messages, json_object_get(row, "tools"));
    if (json_is_string(text)) return encode_text(r, json_string_value(text), json_string_length(text));
    if (json_is_array(ids)) return take_ids(r, ids);
    if (json_is_array(messages)) return sn_fail(SN_ERR_USAGE, "the row has \"messages\": they need the model's chat template (--chat)");
    return sn_fail(SN_ERR_DATA, "wanted an object with \"text\", \"messages\" or \"input_ids\"");
}

static bool is_json_lines(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".jsonl") || !strcmp(dot, ".ndjson"));
}

static sn_status each_row(rows *r, char *text, size_t size, snug_row_fn fn, void *context) {
    bool json = is_json_lines(r->path);
    for (char *at = text, *end = text + size; at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = stop ? (size_t)(stop - at) : (size_t)(end - at);
        char *next = stop ? stop + 1 : end;
        if (n && at[n - 1] == '\r') n--;
        r->line++;
        r->ids.size = 0;
        if (json) {
            json_error_t error;
            if (strspn(at, " \t\r") >= n) { /* an empty line is no row */
                at = next;
                continue;
            }
            json_t *row = json_loadb(at, n, JSON_REJECT_DUPLICATES, &error);
            if (!row) return sn_fail(SN_ERR_DATA, "%s:%lld: %s", r->path, (long long)r->line, error.text);
            sn_status s = encode_row(r, row);
            json_decref(row);
            if (s != SN_OK) return sn_fail_in(s, "%s:%lld", r->path, (long long)r->line);
        } else {
            SN_TRY(encode_text(r, at, n));
        }
        if (!fn(context, r->ids.data, r->ids.size)) return sn_fail(SN_ERR_INTERRUPTED, "interrupted");
        at = next;
    }
    return SN_OK;
}

static sn_status prepare_chat(rows *r) {
    const sn_model *m = r->model;
    if (!m->chat_template) return sn_fail(SN_ERR_UNSUPPORTED, "%s has no chat template", m->path);
    SN_TRY(sn_chat_template_parse(m->chat_template, strlen(m->chat_template), &r->template));
    SN_TRY(sn_encoder_of_tokenizer(m->tokenizer, &r->encoder));
    SN_TRY(sn_token_text(m->tokenizer, sn_tokenizer_bos(m->tokenizer), &r->pool, &r->bos));
    return sn_token_text(m->tokenizer, sn_tokenizer_eos(m->tokenizer), &r->pool, &r->eos);
}

snug_status snug_tokenize_file(const snug_model *m, const char *path, bool chat, snug_row_fn row, void *context) {
    rows r = {.model = &m->model, .path = path};
    char *text = NULL;
    size_t size = 0;
    sn_status s = sn_need_tokenizer(&m->model);
    if (s == SN_OK && chat) s = prepare_chat(&r);
    if (s == SN_OK) s = sn_file_read_all(path, MOST_TEXT, &text, &size);
    if (s == SN_OK) s = each_row(&r, text, size, row, context);
    sn_free(text);
    sn_ids_free(&r.ids);
    if (r.template) sn_chat_template_free(r.template);
    sn_pool_free(&r.pool);
    return (snug_status)s;
}

typedef struct joined {
    sn_ids *ids;
    int32_t eos;
    sn_status status;
} joined;

static bool join(void *context, const int32_t *ids, size_t n) {
    joined *j = context;
    for (size_t i = 0; i < n && j->status == SN_OK; i++) j->status = sn_ids_push(j->ids, ids[i]);
    if (j->status == SN_OK && n && ids[n - 1] != j->eos && j->eos >= 0) j->status = sn_ids_push(j->ids, j->eos);
    return j->status == SN_OK;
}

sn_status sn_file_ids(const snug_model *m, const char *path, sn_ids *out) {
    char *text;
    size_t size;
    SN_TRY(sn_need_tokenizer(&m->model));
    if (is_json_lines(path)) {
        joined j = {out, sn_tokenizer_eos(m->model.tokenizer), SN_OK};
        sn_status s = (sn_status)snug_tokenize_file(m, path, m->model.chat_template != NULL, join, &j);
        return j.status != SN_OK ? j.status : s;
    }
    SN_TRY(sn_file_read_all(path, MOST_TEXT, &text, &size));
    sn_status s = sn_tokenizer_encode(m->model.tokenizer, text, size, SN_TOKENIZER_ADD_SPECIAL, out);
    sn_free(text);
    return s;
}
