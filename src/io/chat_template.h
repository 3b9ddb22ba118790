/* Chat templates: a conversation to the text that a model was trained on.
 *
 * The language is Jinja's as transformers sets it up for `chat_template` (see jinja.h). A template is hostile input: steps,
 * bytes and nesting are limited, and a fault is an error that names the line and what is wrong.
 *
 *     sn_chat_template *t;
 *     SN_TRY(sn_chat_template_parse(text, size, &t));
 *     sn_chat_input in = {.messages = "[{\"role\": \"user\", \"content\": \"Hi\"}]", .add_generation_prompt = true};
 *     sn_chat_text out = {0};
 *     SN_TRY(sn_chat_template_render(t, &in, &out));   // out.text.data: "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
 *     sn_chat_text_free(&out);
 *
 * A parsed template is read-only: any number of threads may render it at once. */
#ifndef SN_IO_CHAT_TEMPLATE_H
#define SN_IO_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct json_t;
typedef struct sn_chat_template sn_chat_template;
typedef struct sn_chat_span { /* bytes [begin, end) of a text */
    size_t begin, end;
} sn_chat_span;

/* What a template sees. Texts are JSON and may be NULL, except that messages or messages_value is needed. */
typedef struct sn_chat_input {
    const char *messages;                /* [{"role": ..., "content": ...}, ...] */
    const struct json_t *messages_value; /* the same, parsed; used when `messages` is NULL */
    const char *tools;                   /* [{"type": "function", ...}, ...] */
    const struct json_t *tools_value;
    const char *extra;                 /* an object of further variables, such as {"enable_thinking": false}; they overwrite those below */
    const char *bos_token, *eos_token; /* NULL: not defined in the template */
    bool add_generation_prompt;
    int64_t now; /* what strftime_now shows, in seconds since 1970, as local time; 0: the present */
} sn_chat_input;

typedef struct sn_chat_text {
    sn_str text;
    /* Parts that came from messages, tools or extra, and not from the template, in order and apart. A control token such as
     * <|im_end|> inside (or reaching into) one is a user's text and must not become the token. A role that is one lower-case
     * word counts as the template's. */
    sn_chat_span *data;
    size_t data_count;
    /* Parts that the assistant says. sn_chat_template_render: the {% generation %} blocks, if the template has any.
     * sn_chat_template_render_training: see there. */
    sn_chat_span *assistant;
    size_t assistant_count;
} sn_chat_text;
void sn_chat_text_free(sn_chat_text *t);

/* "chat_template" of the text of a tokenizer_config.json: a string, or a list of {name, template} of which "default"
 * counts. *out is NULL when there is none (sn_free it). name: the folder, for messages. */
sn_status sn_hf_chat_template(const char *name, const char *text, size_t size, char **out);

/* SN_ERR_FORMAT with the line for a syntax error, SN_ERR_UNSUPPORTED for statements, filters and tests that snug lacks. */
sn_status sn_chat_template_parse(const char *text, size_t size, sn_chat_template **out);
void sn_chat_template_free(sn_chat_template *t);
const char *sn_chat_template_hash(const sn_chat_template *t); /* SHA-256 of the text, in hex */

/* Overwrites *out (zero-initialised, or from an earlier call). SN_ERR_FORMAT when the template fails or refuses, or for
 * malformed JSON. */
sn_status sn_chat_template_render(const sn_chat_template *t, const sn_chat_input *in, sn_chat_text *out);

/* Renders the whole conversation without a generation prompt, and finds in `assistant` what the assistant says in each of its
 * turns: its text with the end-of-turn token, without the header before and the white space after. With {% generation %} marks
 * these are the marks. Else turn k is what rendering messages[:k+1] adds to messages[:k] with a generation prompt; where either
 * is not how the whole text begins, the template has no such parts, and SN_ERR_UNSUPPORTED says so and names the turn. */
sn_status sn_chat_template_render_training(const sn_chat_template *t, const sn_chat_input *in, sn_chat_text *out);

#endif
