/* Fuzz target: a template, then a NUL, then messages (both may be anything). Nothing may crash, leak or run for long. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "io/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = memchr(text, 0, size);
    size_t source_size = end ? (size_t)(end - text) : size;
    char *messages = sn_strndup(end ? end + 1 : "[{\"role\":\"user\",\"content\":\"hi\"}]", end ? size - source_size - 1 : 32);
    sn_chat_template *t;
    sn_chat_text out = {0};
    if (messages && sn_chat_template_parse(text, source_size, &t) == SN_OK) {
        sn_chat_input in = {.messages = messages, .bos_token = "<s>", .eos_token = "</s>", .now = 1};
        if (sn_chat_template_render(t, &in, &out) == SN_OK && out.data_count && out.data[out.data_count - 1].end > out.text.size)
            __builtin_trap();
        sn_chat_template_render_training(t, &in, &out);
        sn_chat_text_free(&out);
        sn_chat_template_free(t);
    }
    sn_free(messages);
    return 0;
}
