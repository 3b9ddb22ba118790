/* One row to token ids and labels. */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "io/dataset_impl.h"
#include "io/jinja.h"

/* A row while its tokens are collected; labels are unshifted until the end: labels[i] is ids[i] or SN_IGNORE_LABEL. */
typedef struct row {
    const sn_dataset_options *o;
    int64_t now;
    const char *where;
    const json_t *json;
    sn_sample *s;
    size_t own; /* tokens that are not BOS or EOS */
} row;

static sn_status push(row *r, int32_t id, bool loss) {
    SN_TRY(sn_ids_push(&r->s->ids, id));
    return sn_ids_push(&r->s->labels, loss ? id : SN_IGNORE_LABEL);
}

/* Labels for the ids that were appended without. */
static sn_status label(row *r, bool loss) {
    sn_sample *s = r->s;
    while (s->labels.size < s->ids.size) SN_TRY(sn_ids_push(&s->labels, loss ? s->ids.data[s->labels.size] : SN_IGNORE_LABEL));
    return SN_OK;
}

static sn_status add_text(row *r, const char *text, size_t n, unsigned flags, bool loss) {
    size_t before = r->s->ids.size;
    SN_TRY(r->o->encoder->encode(r->o->encoder, text, n, flags, &r->s->ids));
    r->own += r->s->ids.size - before;
    return label(r, loss);
}

static sn_status add_eos(row *r) { /* unless the text wrote it already */
    const sn_ids *ids = &r->s->ids;
    return ids->size && ids->data[ids->size - 1] == r->o->encoder->eos ? SN_OK : push(r, r->o->encoder->eos, true);
}

static bool only_space(const char *s, size_t n) {
    jn_value text = {.kind = JN_STRING, .text = s, .size = n};
    return jn_strip(&text, NULL, 3).size == 0;
}

static sn_status document(row *r, const json_t *value) {
    const sn_encoder *e = r->o->encoder;
    if (!json_is_string(value)) return sn_fail(SN_ERR_DATA, "%s: \"text\" is not a string", r->where);
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    if (only_space(text, n)) return SN_OK;
    SN_TRY(add_text(r, text, n, r->o->escape_special ? 0 : SN_ENCODE_SPECIAL, true));
    sn_ids *ids = &r->s->ids;
    bool has_bos = ids->size && ids->data[0] == e->bos, has_eos = ids->size && ids->data[ids->size - 1] == e->eos;
    r->own -= (size_t)has_bos + (has_eos && !(has_bos && ids->size == 1));
    if (e->bos >= 0 && !has_bos) {
        SN_TRY(push(r, e->bos, true));
        memmove(ids->data + 1, ids->data, (ids->size - 1) * sizeof *ids->data);
        ids->data[0] = e->bos;
        memcpy(r->s->labels.data, ids->data, ids->size * sizeof *ids->data); /* all of a document carries loss */
    }
    return add_eos(r);
}

static sn_status conversation(row *r, const json_t *messages, const json_t *tools) {
    const sn_dataset_options *o = r->o;
    if (!o->chat_template) return sn_fail(SN_ERR_DATA, "%s: a conversation, but the model has no chat template", r->where);
    const char *tools_text = json_is_string(tools) && json_string_length(tools) ? json_string_value(tools) : NULL;
    sn_chat_input in = {.messages_value = messages,
                        .tools = tools_text,
                        .tools_value = json_is_array(tools) ? tools : NULL,
                        .bos_token = o->bos_token,
                        .eos_token = o->eos_token,
                        .now = r->now};
    sn_chat_text t = {0};
    sn_status s = sn_chat_template_render_training(o->chat_template, &in, &t);
    size_t from = 0;
    for (size_t i = 0; i <= t.assistant_count && s == SN_OK; i++) { /* the text before a turn without loss, the turn with */
        bool last = i == t.assistant_count;
        size_t begin = last ? t.text.size : t.assistant[i].begin, end = last ? t.text.size : t.assistant[i].end;
        if (begin > from) s = sn_encode_chat(o->encoder, &t, from, begin, &r->s->ids);
        if (s == SN_OK) s = label(r, false);
        if (s == SN_OK && end > begin) s = sn_encode_chat(o->encoder, &t, begin, end, &r->s->ids);
        if (s == SN_OK) s = label(r, true);
        from = end;
    }
    sn_chat_text_free(&t);
    r->own = r->s->ids.size;
    return s == SN_OK ? s : sn_fail_in(s, "%s", r->where);
}

static sn_status add_message(json_t *messages, const char *role, const char *content, size_t n) {
    json_t *m = json_pack("{s:s, s:s%}", "role", role, "content", content, n);
    if (!m) return sn_fail(SN_ERR_DATA, "a message is not valid UTF-8, or memory is gone");
    return json_array_append_new(messages, m) ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a message") : SN_OK;
}

static sn_status sharegpt(row *r, const json_t *turns, json_t *messages) {
    static const char *const roles[][2] = {{"system", "system"},
                                           {"human", "user"},
                                           {"user", "user"},
                                           {"gpt", "assistant"},
                                           {"assistant", "assistant"},
                                           {"model", "assistant"},
                                           {"chatgpt", "assistant"},
                                           {"function_call", "assistant"},
                                           {"tool", "tool"},
                                           {"observation", "tool"},
                                           {"function_response", "tool"}};
    const json_t *system = json_object_get(r->json, "system");
    size_t i;
    json_t *turn;
    if (!json_is_array(turns)) return sn_fail(SN_ERR_DATA, "%s: \"conversations\" is not an array", r->where);
    if (json_is_string(system) && json_string_length(system))
        SN_TRY(add_message(messages, "system", json_string_value(system), json_string_length(system)));
    json_array_foreach((json_t *)turns, i, turn) {
        const char *from = json_string_value(json_object_get(turn, "from")), *role = NULL;
        const json_t *value = json_object_get(turn, "value");
        for (size_t k = 0; from && k < sizeof roles / sizeof *roles; k++) {
            if (!strcmp(from, roles[k][0])) role = roles[k][1];
        }
        if (!role)
            return sn_fail(SN_ERR_DATA, "%s: conversations[%zu].from is %s, not system, human, gpt or tool", r->where, i,
                           from ? from : "missing");
        if (!json_is_string(value)) return sn_fail(SN_ERR_DATA, "%s: conversations[%zu].value is not a string", r->where, i);
        SN_TRY(add_message(messages, role, json_string_value(value), json_string_length(value)));
    }
    return SN_OK;
}

static sn_status optional_string(const row *r, const char *key, const char **text, size_t *n) {
    const json_t *v = json_object_get(r->json, key);
    *text = "";
    *n = 0;
    if (!v || json_is_null(v)) return SN_OK;
    if (!json_is_string(v)) return sn_fail(SN_ERR_DATA, "%s: \"%s\" is not a string", r->where, key);
    *text = json_string_value(v);
    *n = json_string_length(v);
    return SN_OK;
}

/* The prompt of Stanford Alpaca, for models without a chat template. */
static void alpaca_prompt(sn_str *s, const char *instruction, size_t n, const char *input, size_t m) {
    sn_str_add(s, "Below is an instruction that describes a task");
    sn_str_add(s, m ? ", paired with an input that provides further context. " : ". ");
    sn_str_add(s, "Write a response that appropriately completes the request.\n\n### Instruction:\n");
    sn_str_append(s, instruction, n);
    if (m) sn_str_add(s, "\n\n### Input:\n");
    sn_str_append(s, input, m);
    sn_str_add(s, "\n\n### Response:\n");
}

static sn_status alpaca(row *r, json_t *messages) {
    const sn_encoder *e = r->o->encoder;
    const char *instruction, *input, *output, *system;
    size_t n, m, k, j;
    SN_TRY(optional_string(r, "instruction", &instruction, &n));
    SN_TRY(optional_string(r, "input", &input, &m));
    SN_TRY(optional_string(r, "output", &output, &k));
    SN_TRY(optional_string(r, "system", &system, &j));
    if (!json_object_get(r->json, "output")) return sn_fail(SN_ERR_DATA, "%s: \"instruction\" without \"output\"", r->where);
    if (only_space(instruction, n) && only_space(input, m)) return SN_OK;
    sn_str prompt = {0};
    sn_status s = SN_OK;
    if (r->o->chat_template) {
        sn_str_append(&prompt, instruction, n);
        if (n && m) sn_str_char(&prompt, '\n');
        sn_str_append(&prompt, input, m);
        if (prompt.failed) s = sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a prompt", r->where);
        if (s == SN_OK && j) s = add_message(messages, "system", system, j);
        if (s == SN_OK) s = add_message(messages, "user", prompt.data, prompt.size);
        if (s == SN_OK) s = add_message(messages, "assistant", output, k);
        if (s == SN_OK) s = conversation(r, messages, NULL);
    } else {
        alpaca_prompt(&prompt, instruction, n, input, m);
        if (prompt.failed) s = sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a prompt", r->where);
        if (s == SN_OK && e->bos >= 0) s = push(r, e->bos, false);
        if (s == SN_OK) s = add_text(r, prompt.data, prompt.size, 0, false);
        if (s == SN_OK) s = add_text(r, output, k, SN_ENCODE_INSIDE, true);
        if (s == SN_OK) s = push(r, e->eos, true);
    }
    sn_str_free(&prompt);
    return s;
}

static sn_status int_list(const row *r, const char *key, const json_t *list, sn_ids *out) {
    size_t i;
    json_t *v;
    if (!json_is_array(list)) return sn_fail(SN_ERR_DATA, "%s: \"%s\" is not an array", r->where, key);
    json_array_foreach((json_t *)list, i, v) {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id > INT32_MAX || (id < 0 && !(out == &r->s->labels && id == SN_IGNORE_LABEL)))
            return sn_fail(SN_ERR_DATA, "%s: %s[%zu] is not a token id", r->where, key, i);
        SN_TRY(sn_ids_push(out, (int32_t)id));
    }
    return SN_OK;
}

static sn_status ready_made(row *r) {
    const json_t *labels = json_object_get(r->json, "labels");
    sn_sample *s = r->s;
    SN_TRY(int_list(r, "input_ids", json_object_get(r->json, "input_ids"), &s->ids));
    r->own = s->ids.size;
    if (!labels) return label(r, true);
    SN_TRY(int_list(r, "labels", labels, &s->labels));
    if (s->ids.size != s->labels.size)
        return sn_fail(SN_ERR_DATA, "%s: %zu input_ids but %zu labels", r->where, s->ids.size, s->labels.size);
    return SN_OK;
}

static sn_status by_format(row *r) {
    const json_t *j = r->json, *messages = json_object_get(j, "messages"), *turns = json_object_get(j, "conversations");
    if (!json_is_object(j)) return sn_fail(SN_ERR_DATA, "%s: not an object", r->where);
    if (json_object_get(j, "input_ids")) return ready_made(r);
    if (messages && !json_is_array(messages)) return sn_fail(SN_ERR_DATA, "%s: \"messages\" is not an array", r->where);
    if (messages) return json_array_size(messages) ? conversation(r, messages, json_object_get(j, "tools")) : SN_OK;
    if (turns || json_object_get(j, "instruction")) {
        json_t *made = json_array();
        sn_status s = made ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate messages", r->where);
        if (s == SN_OK) s = turns ? sharegpt(r, turns, made) : alpaca(r, made);
        if (s == SN_OK && turns && json_array_size(made)) s = conversation(r, made, json_object_get(j, "tools"));
        json_decref(made);
        return s;
    }
    if (json_object_get(j, "text")) return document(r, json_object_get(j, "text"));
    return sn_fail(SN_ERR_DATA, "%s: none of text, messages, conversations, instruction, input_ids is there", r->where);
}

/* Cuts, shifts, counts. */
static void finish(row *r, sn_row_outcome *outcome, bool *truncated) {
    sn_ids *ids = &r->s->ids, *labels = &r->s->labels;
    size_t count = 0;
    *truncated = (int64_t)ids->size > r->o->cutoff_len;
    if (*truncated) ids->size = labels->size = (size_t)r->o->cutoff_len;
    for (size_t i = 0; i + 1 < ids->size; i++) count += (labels->data[i] = labels->data[i + 1]) != SN_IGNORE_LABEL;
    if (ids->size) labels->data[ids->size - 1] = SN_IGNORE_LABEL;
    *outcome = r->own < 2 ? SN_ROW_EMPTY : count ? SN_ROW_USED : SN_ROW_NO_LOSS;
}

sn_status sn_sample_make(const sn_dataset_options *o, int64_t now, const char *where, const char *json, size_t size, sn_sample *s,
                         sn_row_outcome *outcome, bool *truncated) {
    json_error_t e;
    row r = {.o = o, .now = now, .where = where, .s = s};
    bool done, has_labels;
    SN_TRY(sn_sample_ready_made(json, size, s, &done, &has_labels));
    if (done) {
        r.own = s->ids.size;
        if (!has_labels) SN_TRY(label(&r, true));
        finish(&r, outcome, truncated);
        return SN_OK;
    }
    s->ids.size = s->labels.size = 0;
    json_t *value = json_loadb(json, size, JSON_ALLOW_NUL, &e);
    if (!value) return sn_fail(SN_ERR_DATA, "%s: not JSON: %s (column %d)", where, e.text, e.column);
    r.json = value;
    sn_status status = by_format(&r);
    if (status == SN_OK) finish(&r, outcome, truncated);
    json_decref(value);
    return status;
}

sn_status sn_sample_chunk(const sn_dataset_options *o, bool first, bool last, const char *text, size_t size, sn_ids *ids) {
    const sn_encoder *e = o->encoder;
    if (first && e->bos >= 0) SN_TRY(sn_ids_push(ids, e->bos));
    SN_TRY(e->encode(e, text, size, first ? 0 : SN_ENCODE_INSIDE, ids));
    return last ? sn_ids_push(ids, e->eos) : SN_OK;
}

void sn_sample_free(sn_sample *s) {
    sn_ids_free(&s->ids);
    sn_ids_free(&s->labels);
    sn_str_free(&s->text);
    sn_ids_free(&s->chunk);
    *s = (sn_sample){0};
}
