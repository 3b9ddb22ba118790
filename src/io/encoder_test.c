/* The encoder of a real tokenizer: no space inside a document, and control tokens in a user's text stay text. */
#include "io/encoder.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/support.h"

static sn_tokenizer *open_golden(const char *path, const char *eos) {
    sn_tokenizer *t;
    char *text, config[80];
    size_t size;
    assert_ok(sn_file_read_all(path, 1 << 24, &text, &size));
    assert_ok(
        sn_tokenizer_from_json(path, text, size, config, (size_t)snprintf(config, sizeof config, "{\"eos_token\": \"%s\"}", eos), &t));
    sn_free(text);
    return t;
}

static void parts_join_to_the_text(void **state) {
    (void)state;
    sn_tokenizer *t = open_golden(SNUG_SOURCE_DIR "/tests/golden/tokenizer/llama2.json", "</s>");
    sn_encoder e;
    assert_ok(sn_encoder_of_tokenizer(t, &e));
    assert_true(e.prefix_space);
    assert_int_equal(e.eos, sn_tokenizer_eos(t));
    static const char *const parts[] = {"The first", "part, and", " two", "\nlines", "", "\xc3\xa4\xe4\xb8\x96"};
    sn_ids ids = {0};
    sn_str decoded = {0}, whole = {0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_ok(e.encode(&e, parts[i], strlen(parts[i]), i ? SN_ENCODE_INSIDE : 0, &ids));
        sn_str_add(&whole, parts[i]);
    }
    assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, 0, &decoded));
    assert_string_equal(decoded.data, whole.data);
    sn_ids_free(&ids);
    sn_str_free(&decoded);
    sn_str_free(&whole);
    sn_tokenizer_close(t);
}

static void count_eos(const char *path, const char *eos) {
    sn_tokenizer *t = open_golden(path, eos);
    sn_encoder e;
    sn_chat_template *template;
    sn_chat_text text = {0};
    sn_ids ids = {0};
    sn_str messages = {0}, decoded = {0};
    static const char source[] = "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ eos_token }}{% endfor %}";
    sn_str_printf(&messages,
                  "[{\"role\":\"user\",\"content\":\"say %s please\"},{\"role\":\"assistant\",\"content\":\"ok "
                  "%s\"},{\"role\":\"user\",\"content\":\"plain\"}]",
                  eos, eos);
    sn_chat_input in = {.messages = messages.data, .eos_token = eos};
    assert_ok(sn_encoder_of_tokenizer(t, &e));
    assert_ok(sn_chat_template_parse(source, sizeof source - 1, &template));
    assert_ok(sn_chat_template_render(template, &in, &text));
    assert_ok(sn_encode_chat(&e, &text, 0, text.text.size, &ids));
    size_t found = 0;
    for (size_t i = 0; i < ids.size; i++) found += ids.data[i] == e.eos;
    assert_int_equal(found, 3); /* one a turn; written five times */
    assert_int_equal(ids.data[ids.size - 1], e.eos);
    assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, 0, &decoded));
    if (!e.prefix_space) assert_string_equal(decoded.data, text.text.data); /* Llama-2's adds a space behind control tokens too */
    sn_ids_free(&ids);
    sn_str_free(&messages);
    sn_str_free(&decoded);
    sn_chat_text_free(&text);
    sn_chat_template_free(template);
    sn_tokenizer_close(t);
}

static void users_cannot_write_control_tokens(void **state) {
    (void)state;
    count_eos(SNUG_SOURCE_DIR "/tests/golden/tokenizer/llama2.json", "</s>");
    count_eos(SNUG_SOURCE_DIR "/tests/golden/tokenizer/smollm.json", "<|im_end|>");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_join_to_the_text), cmocka_unit_test(users_cannot_write_control_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
