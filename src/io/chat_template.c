#include "io/chat_template.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/mem.h"
#include "io/jinja.h"

struct sn_chat_template {
    sn_pool pool;
    jn_node *root;
    bool has_generation;
    char hash[65];
};

void sn_chat_text_free(sn_chat_text *t) {
    sn_str_free(&t->text);
    sn_free(t->data);
    sn_free(t->assistant);
    *t = (sn_chat_text){0};
}

void sn_chat_template_free(sn_chat_template *t) {
    if (!t) return;
    sn_pool_free(&t->pool);
    sn_free(t);
}

sn_status sn_chat_template_parse(const char *text, size_t size, sn_chat_template **out) {
    jn_token *tokens;
    sn_chat_template *t = *out = sn_alloc_zero(1, sizeof *t);
    if (!t) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a chat template");
    sn_status s = jn_lex(&t->pool, text, size, &tokens);
    if (s == SN_OK) s = jn_parse(&t->pool, tokens, &t->root, &t->has_generation);
    sn_sha256 h;
    sn_sha256_start(&h);
    sn_sha256_add(&h, text, size);
    sn_sha256_end(&h, t->hash);
    if (s == SN_OK) return SN_OK;
    sn_chat_template_free(t);
    *out = NULL;
    return s;
}

const char *sn_chat_template_hash(const sn_chat_template *t) { return t->hash; }

/* The input with its JSON parsed: `messages` and `tools` are borrowed or owned, as `owned` says. */
typedef struct parsed {
    const json_t *messages, *tools, *extra;
    json_t *owned[3];
} parsed;

static sn_status load(const char *text, const char *what, json_t **owned, const json_t **out) {
    json_error_t e;
    if (!text) return SN_OK;
    *out = *owned = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    return *owned ? SN_OK : sn_fail(SN_ERR_FORMAT, "%s are not JSON: line %d: %s", what, e.line, e.text);
}

static void parsed_free(parsed *p) {
    for (int i = 0; i < 3; i++) json_decref(p->owned[i]);
}

static sn_status parse_input(const sn_chat_input *in, parsed *p) {
    *p = (parsed){.messages = in->messages_value, .tools = in->tools_value};
    sn_status s = load(in->messages, "messages", &p->owned[0], &p->messages);
    if (s == SN_OK) s = load(in->tools, "tools", &p->owned[1], &p->tools);
    if (s == SN_OK) s = load(in->extra, "extra template variables", &p->owned[2], &p->extra);
    if (s == SN_OK && !json_is_array(p->messages)) s = sn_fail(SN_ERR_FORMAT, "messages are not an array");
    if (s == SN_OK && p->extra && !json_is_object(p->extra)) s = sn_fail(SN_ERR_FORMAT, "extra template variables are not an object");
    if (s != SN_OK) parsed_free(p);
    return s;
}

static sn_status set(jn_run *x, const char *name, const jn_value *v) {
    jn_value key = jn_text(name);
    return jn_dict_set(x, &x->scope->variables, &key, v);
}

static sn_status set_json(jn_run *x, const char *name, const json_t *json) {
    jn_value v = {.kind = JN_NONE};
    if (json) SN_TRY(jn_from_json(x, json, true, &v));
    return set(x, name, &v);
}

static sn_status set_variables(jn_run *x, const sn_chat_input *in, const parsed *p, size_t message_count, bool prompt) {
    jn_value v;
    const char *key;
    json_t *item;
    SN_TRY(jn_scope_push(x));
    SN_TRY(jn_list_new(x, JN_LIST, message_count, &v));
    for (size_t i = 0; i < message_count; i++) {
        jn_value message;
        SN_TRY(jn_from_json(x, json_array_get(p->messages, i), true, &message));
        SN_TRY(jn_list_add(x, v.as.list, &message));
    }
    SN_TRY(set(x, "messages", &v));
    SN_TRY(set_json(x, "tools", p->tools));
    SN_TRY(set_json(x, "documents", NULL));
    v = jn_bool(prompt);
    SN_TRY(set(x, "add_generation_prompt", &v));
    if (in->bos_token) {
        v = jn_text(in->bos_token);
        SN_TRY(set(x, "bos_token", &v));
    }
    if (in->eos_token) {
        v = jn_text(in->eos_token);
        SN_TRY(set(x, "eos_token", &v));
    }
    json_object_foreach((json_t *)p->extra, key, item) SN_TRY(set_json(x, key, item));
    return SN_OK;
}

static sn_status find_data(const jn_buffer *b, sn_chat_text *out) {
    size_t capacity = 0;
    for (size_t at = 0, end; at < b->mask.size; at = end) {
        for (end = at + 1; end < b->mask.size && b->mask.data[end] == b->mask.data[at];) end++;
        if (!b->mask.data[at]) continue;
        SN_TRY(SN_GROW(out->data, out->data_count, capacity));
        out->data[out->data_count++] = (sn_chat_span){at, end};
    }
    return SN_OK;
}

static sn_status run(const sn_chat_template *t, const sn_chat_input *in, const parsed *p, size_t message_count, bool prompt, bool spans,
                     sn_chat_text *out) {
    jn_buffer b = {0};
    jn_run x = {.out = &b, .final = &b, .now = in->now ? in->now : (int64_t)time(NULL), .want_spans = spans};
    sn_chat_text_free(out);
    sn_status s = set_variables(&x, in, p, message_count, prompt);
    if (s == SN_OK) s = jn_exec(&x, t->root);
    if (s == SN_OK && (b.text.failed || b.mask.failed)) s = sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate memory");
    if (s == SN_OK && b.too_large) s = sn_fail(SN_ERR_FORMAT, "chat template: the output is larger than %d bytes", JN_MAX_BYTES);
    if (s == SN_OK) sn_str_append(&b.text, "", 0); /* a NUL-terminated text even when nothing was written */
    if (s == SN_OK) s = b.text.failed ? sn_fail(SN_ERR_NO_MEMORY, "chat template: cannot allocate memory") : find_data(&b, out);
    if (s == SN_OK) {
        out->text = b.text;
        out->assistant = x.spans;
        out->assistant_count = x.span_count;
        b.text = (sn_str){0};
    } else {
        sn_free(x.spans);
        sn_chat_text_free(out);
    }
    jn_buffer_free(&b);
    sn_pool_free(&x.pool);
    return s;
}

sn_status sn_chat_template_render(const sn_chat_template *t, const sn_chat_input *in, sn_chat_text *out) {
    parsed p;
    SN_TRY(parse_input(in, &p));
    sn_status s = run(t, in, &p, json_array_size(p.messages), in->add_generation_prompt, true, out);
    parsed_free(&p);
    return s;
}

static bool begins(const sn_chat_text *whole, const char *text, size_t size) {
    return size <= whole->text.size && (!size || !memcmp(whole->text.data, text, size));
}

/* Where a turn ends: after messages[:turn+1], less the white space that follows the end-of-turn token. Some templates close the
 * whole conversation with one more end token, which an inner turn then lacks. */
static sn_status turn_end(const sn_chat_text *whole, const sn_chat_text *part, const char *eos, size_t begin, size_t turn, size_t *end) {
    size_t n = part->text.size, eos_size = eos ? strlen(eos) : 0;
    const char *text = part->text.data;
    if (!begins(whole, text, n) && eos_size && n >= begin + eos_size && !memcmp(text + n - eos_size, eos, eos_size)) n -= eos_size;
    if (!begins(whole, text, n) || n < begin)
        return sn_fail(SN_ERR_UNSUPPORTED,
                       "message %zu: the chat template writes an assistant turn differently when more messages follow (the prefix property "
                       "fails), so the turn's place in the text is unknown; a template with {%% generation %%} marks can be trained on",
                       turn);
    while (n > begin && strchr(" \t\n\r", text[n - 1])) n--;
    *end = n;
    return SN_OK;
}

static sn_status find_turn(const sn_chat_template *t, const sn_chat_input *in, const parsed *p, size_t turn, sn_chat_text *whole,
                           size_t *capacity) {
    sn_chat_text part = {0};
    size_t begin = 0, end = 0;
    sn_status s = run(t, in, p, turn, true, false, &part);
    if (s == SN_OK) {
        begin = part.text.size;
        if (!begins(whole, part.text.data, begin))
            s = sn_fail(SN_ERR_UNSUPPORTED,
                        "message %zu: the chat template's generation prompt is not how the assistant's turn begins (the prefix property "
                        "fails), so the turn's place in the text is unknown; a template with {%% generation %%} marks can be trained on",
                        turn);
    }
    if (s == SN_OK) s = run(t, in, p, turn + 1, false, false, &part);
    if (s == SN_OK) s = turn_end(whole, &part, in->eos_token, begin, turn, &end);
    if (s == SN_OK) s = SN_GROW(whole->assistant, whole->assistant_count, *capacity);
    if (s == SN_OK) whole->assistant[whole->assistant_count++] = (sn_chat_span){begin, end};
    sn_chat_text_free(&part);
    return s;
}

sn_status sn_chat_template_render_training(const sn_chat_template *t, const sn_chat_input *in, sn_chat_text *out) {
    parsed p;
    size_t capacity = 0;
    SN_TRY(parse_input(in, &p));
    size_t count = json_array_size(p.messages);
    sn_status s = run(t, in, &p, count, false, t->has_generation, out);
    for (size_t i = 0; i < count && s == SN_OK && !t->has_generation; i++) {
        const char *role = json_string_value(json_object_get(json_array_get(p.messages, i), "role"));
        if (role && !strcmp(role, "assistant")) s = find_turn(t, in, &p, i, out, &capacity);
    }
    if (s != SN_OK) sn_chat_text_free(out);
    parsed_free(&p);
    return s;
}

sn_status sn_hf_chat_template(const char *name, const char *text, size_t size, char **out) {
    json_error_t error;
    *out = NULL;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) return sn_fail(SN_ERR_FORMAT, "%s/tokenizer_config.json:%d: %s", name, error.line, error.text);
    const json_t *v = json_object_get(root, "chat_template"), *item;
    size_t i;
    const char *found = json_string_value(v);
    if (json_is_array(v)) json_array_foreach(v, i, item) {
            const char *which = json_string_value(json_object_get(item, "name"));
            if (which && !strcmp(which, "default")) found = json_string_value(json_object_get(item, "template"));
        }
    if (found) *out = sn_strdup(found);
    sn_status s = found && !*out ? sn_fail(SN_ERR_NO_MEMORY, "cannot copy the chat template") : SN_OK;
    json_decref(root);
    return s;
}
