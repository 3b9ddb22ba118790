/* Chat templates against transformers' own rendering (tests/golden/make_templates.py), spans, limits, hostile input. */
#include "io/chat_template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/support.h"

static const int64_t golden_time = 1721995200; /* 2024-07-26 12:00:00 UTC */

static json_t *golden(void) { /* an array of the file's lines */
    char *text;
    json_t *lines = json_array();
    assert_ok(sn_file_read_all(SNUG_SOURCE_DIR "/tests/golden/templates/cases.jsonl", 16 << 20, &text, NULL));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_error_t e;
        json_t *v = json_loads(line, JSON_ALLOW_NUL, &e);
        if (!v) fail_msg("golden line: %s", e.text);
        json_array_append_new(lines, v);
    }
    sn_free(text);
    return lines;
}

static json_t *named(json_t *lines, const char *kind, const char *name, const char *unlike) {
    size_t i;
    json_t *v;
    json_array_foreach(lines, i, v) {
        const char *n = json_string_value(json_object_get(v, kind));
        if (n && !strcmp(n, name) && !json_object_get(v, unlike)) return v;
    }
    fail_msg("the golden file has no %s %s", kind, name);
    return NULL;
}

static sn_status render(const char *source, size_t size, const sn_chat_input *in, sn_chat_text *out) {
    sn_chat_template *t;
    SN_TRY(sn_chat_template_parse(source, size, &t));
    sn_status s = sn_chat_template_render(t, in, out);
    sn_chat_template_free(t);
    return s;
}

static void compare(const char *what, sn_status s, const sn_chat_text *out, const json_t *line) {
    const json_t *expect = json_object_get(line, "expect");
    if (!expect) {
        if (s == SN_OK) fail_msg("%s: no error, but transformers says %s", what, json_string_value(json_object_get(line, "error")));
        assert_non_null(strstr(sn_error_text(), "line "));
        return;
    }
    if (s != SN_OK) fail_msg("%s: %s", what, sn_error_text());
    size_t n = json_string_length(expect);
    if (out->text.size != n || memcmp(out->text.data, json_string_value(expect), n))
        fail_msg("%s\n--- wanted:\n%s\n--- found:\n%s", what, json_string_value(expect), out->text.data);
}

static void renders_as_transformers_does(void **state) {
    (void)state;
    json_t *lines = golden(), *line;
    size_t i, cases = 0;
    json_array_foreach(lines, i, line) {
        const char *name = json_string_value(json_object_get(line, "template")),
                   *list_name = json_string_value(json_object_get(line, "list"));
        if (!name || !list_name) continue;
        const json_t *source = json_object_get(named(lines, "template", name, "list"), "source");
        const json_t *list = named(lines, "list", list_name, "template");
        char *extra = json_object_get(list, "extra") ? json_dumps(json_object_get(list, "extra"), 0) : NULL, what[100];
        sn_chat_input in = {.messages_value = json_object_get(list, "messages"),
                            .tools_value = json_object_get(list, "tools"),
                            .extra = extra,
                            .bos_token = "<s>",
                            .eos_token = "</s>",
                            .now = golden_time,
                            .add_generation_prompt = json_is_true(json_object_get(line, "prompt"))};
        sn_chat_text out = {0};
        snprintf(what, sizeof what, "template %s, messages %s", name, list_name);
        compare(what, render(json_string_value(source), json_string_length(source), &in, &out), &out, line);
        const json_t *spans = json_object_get(line, "spans");
        assert_int_equal(out.assistant_count, json_array_size(spans));
        for (size_t k = 0; k < out.assistant_count; k++) {
            assert_int_equal(out.assistant[k].begin, json_integer_value(json_array_get(json_array_get(spans, k), 0)));
            assert_int_equal(out.assistant[k].end, json_integer_value(json_array_get(json_array_get(spans, k), 1)));
        }
        sn_chat_text_free(&out);
        free(extra);
        cases++;
    }
    assert_true(cases > 200);
    json_decref(lines);
}

static void expressions_as_jinja2_does(void **state) {
    (void)state;
    json_t *lines = golden(), *line;
    size_t i, cases = 0;
    char *vars = json_dumps(json_object_get(json_array_get(lines, 0), "vars"), 0);
    json_array_foreach(lines, i, line) {
        const json_t *source = json_object_get(line, "micro");
        if (!source) continue;
        sn_chat_input in = {.messages = "[]", .extra = vars, .now = golden_time};
        sn_chat_text out = {0};
        compare(json_string_value(source), render(json_string_value(source), json_string_length(source), &in, &out), &out, line);
        sn_chat_text_free(&out);
        cases++;
    }
    assert_true(cases > 90);
    free(vars);
    json_decref(lines);
}

static const char chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static void assert_spans(const sn_chat_text *t, size_t count, const char *const *texts) {
    assert_int_equal(t->assistant_count, count);
    for (size_t i = 0; i < count; i++) {
        size_t n = t->assistant[i].end - t->assistant[i].begin;
        if (n != strlen(texts[i]) || memcmp(t->text.data + t->assistant[i].begin, texts[i], n))
            fail_msg("turn %zu: wanted '%s', found '%.*s'", i, texts[i], (int)n, t->text.data + t->assistant[i].begin);
    }
}

static sn_status render_training(const char *source, const char *messages, sn_chat_text *out) {
    sn_chat_template *t;
    sn_chat_input in = {.messages = messages, .bos_token = "<s>", .eos_token = "</s>", .now = golden_time};
    SN_TRY(sn_chat_template_parse(source, strlen(source), &t));
    sn_status s = sn_chat_template_render_training(t, &in, out);
    sn_chat_template_free(t);
    return s;
}

static const char three_turns[] = "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"one\"},"
                                  "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"two \\n\"},"
                                  "{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"three\"}]";

static void assistant_turns(void **state) {
    (void)state;
    json_t *lines = golden();
    sn_chat_text out = {0};
    assert_ok(render_training(chatml, three_turns, &out));
    assert_spans(&out, 3, (const char *const[]){"one<|im_end|>", "two \n<|im_end|>", "three<|im_end|>"});
    static const struct {
        const char *name, *turns[3];
    } cases[] = {
        {"chatml_generation", {"one<|im_end|>", "two \n<|im_end|>", "three<|im_end|>"}},
        {"llama3", {"one<|eot_id|>", "two<|eot_id|>", "three<|eot_id|>"}},
        {"llama2", {" one </s>", " two </s>", " three </s>"}},
        {"mistral_tools", {" one</s>", " two</s>", " three</s>"}},
        {"gemma", {"one<end_of_turn>", "two<end_of_turn>", "three<end_of_turn>"}},
        {"phi4mini", {"one<|end|>", "two \n<|end|>", "three<|end|></s>"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(render_training(json_string_value(json_object_get(named(lines, "template", cases[i].name, "list"), "source")),
                                  three_turns, &out));
        assert_spans(&out, 3, cases[i].turns);
    }
    /* this template drops the thoughts of earlier turns: what it writes for a turn depends on what follows */
    const char *thoughts = "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"<think>t</think>one\"},"
                           "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"two\"}]";
    assert_int_equal(
        render_training(json_string_value(json_object_get(named(lines, "template", "thinking", "list"), "source")), thoughts, &out),
        SN_ERR_UNSUPPORTED);
    assert_non_null(strstr(sn_error_text(), "message 1"));
    assert_non_null(strstr(sn_error_text(), "prefix property"));
    sn_chat_text_free(&out);
    json_decref(lines);
}

static void user_text_is_told_apart(void **state) {
    (void)state;
    sn_chat_input in = {.messages =
                            "[{\"role\":\"user\",\"content\":\"x<|im_end|>y\"},{\"role\":\"<|im_start|>\",\"content\":\"\\u00e9z\"}]"};
    const char *source =
        "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content | trim | replace('z', '<Z>') }}{{ m.content[1:3] ~ '|' }}"
        "{{ m.content.split('<')[-1] | upper }}{{ {'k': m.content} | tojson }}<|im_end|>{% endfor %}";
    sn_chat_text out = {0};
    sn_str marked = {0};
    assert_ok(render(source, strlen(source), &in, &out));
    for (size_t at = 0, k = 0; at <= out.text.size; at++) {
        if (k < out.data_count && out.data[k].end == at) sn_str_char(&marked, ']'), k++;
        if (k < out.data_count && out.data[k].begin == at) sn_str_char(&marked, '[');
        if (at < out.text.size) sn_str_char(&marked, out.text.data[at]);
    }
    assert_string_equal(marked.data, "<|im_start|>user:[x<|im_end|>y<|]|[|IM_END|>Y]{\"k\": \"[x<|im_end|>y]\"}<|im_end|>"
                                     "<|im_start|>[<|im_start|>]:[\xc3\xa9]<Z>[z]|[\xc3\x89Z]{\"k\": \"[\xc3\xa9z]\"}<|im_end|>");
    sn_str_free(&marked);
    sn_chat_text_free(&out);
}

static void hostile_templates_end(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x[0] }}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'a' * 1000000000000 }}",
        "{{ ('ab' * 100000) .replace('', 'x' * 100000) }}",
        "{{ [1] * 99999999999 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ 99999999999999999999 }}",
        "{{ 'x' | map('map', 'map', 'map') }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{{ 'a' | indent(9999999999) }}",
        "{{ 'a' | tojson(indent=99999) }}",
        "{{ '%.9f%' % 1 }}",
        "{{ strftime_now('%Y' * 500) }}",
        "{{ '\\xZZ' }}",
        "{{ '\\ud800' }}",
        "{{ messages | batch(99999999999, 1) }}{{ [1] | batch(99999999999, 1) }}",
    };
    sn_chat_input in = {.messages = "[]"};
    sn_chat_text out = {0};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (render(sources[i], strlen(sources[i]), &in, &out) == SN_OK) fail_msg("no error: %s", sources[i]);
        assert_non_null(strstr(sn_error_text(), "line "));
    }
    sn_str deep = {0};
    for (int i = 0; i < 100000; i++) sn_str_add(&deep, "{{ ((");
    assert_int_equal(render(deep.data, deep.size, &in, &out), SN_ERR_FORMAT);
    sn_str_clear(&deep);
    sn_str_add(&deep, "{{ ");
    for (int i = 0; i < 100000; i++) sn_str_add(&deep, "not ");
    assert_int_equal(render(deep.data, deep.size, &in, &out), SN_ERR_FORMAT);
    sn_str_clear(&deep);
    for (int i = 0; i < 100000; i++) sn_str_add(&deep, "{% if 1 %}");
    assert_int_equal(render(deep.data, deep.size, &in, &out), SN_ERR_FORMAT);
    sn_str_clear(&deep);
    sn_str_add(&deep, "{{ 1");
    for (int i = 0; i < 100000; i++) sn_str_add(&deep, " + 1");
    sn_str_add(&deep, " }}");
    assert_int_equal(render(deep.data, deep.size, &in, &out), SN_ERR_FORMAT);
    sn_str_free(&deep);
}

/* The longest numbers, with an exponent at every place. */
static void long_numbers_end(void **state) {
    (void)state;
    for (int digits = 40; digits < 80; digits++) {
        char source[128] = "{{ ";
        memset(source + 3, '1', (size_t)digits);
        strcpy(source + 3 + digits, "e5 }}");
        sn_chat_text out = {0};
        sn_chat_input in = {.messages = "[]"};
        if (render(source, strlen(source), &in, &out) != SN_OK) assert_true(*sn_error_text() != 0);
        sn_chat_text_free(&out);
    }
}

static void errors_name_line_and_cause(void **state) {
    (void)state;
    static const struct {
        const char *source, *words;
        sn_status status;
    } cases[] = {
        {"a\nb\n{{ x.y.z }}", "line 3: 'y' is undefined", SN_ERR_FORMAT},
        {"\n{% if x %}\n", "line 2: expected {% endif %}", SN_ERR_FORMAT},
        {"\n\n{{ raise_exception('no ' ~ 'way') }}", "line 3: the template refuses: no way", SN_ERR_FORMAT},
        {"{{ 'a' | shout }}", "line 1: unknown filter 'shout'", SN_ERR_UNSUPPORTED},
        {"{{ 1 +\n'a' }}", "'int' + 'str' is not possible", SN_ERR_FORMAT},
        {"{% include 'x' %}", "line 1: expected a statement", SN_ERR_FORMAT},
        {"{% for x in y recursive %}{% endfor %}", "recursive", SN_ERR_UNSUPPORTED},
    };
    sn_chat_text out = {0};
    sn_chat_input in = {.messages = "[]", .extra = "{\"x\": {}}"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(render(cases[i].source, strlen(cases[i].source), &in, &out), cases[i].status);
        if (!strstr(sn_error_text(), cases[i].words)) fail_msg("%s: %s", cases[i].source, sn_error_text());
    }
    in = (sn_chat_input){.messages = "{\"role\": 1}"};
    assert_int_equal(render("", 0, &in, &out), SN_ERR_FORMAT);
    in.messages = "[";
    assert_int_equal(render("", 0, &in, &out), SN_ERR_FORMAT);
    in = (sn_chat_input){0};
    assert_int_equal(render("", 0, &in, &out), SN_ERR_FORMAT);
    in = (sn_chat_input){.messages = "[]", .extra = "[]"};
    assert_int_equal(render("", 0, &in, &out), SN_ERR_FORMAT);
}

static void allocations_may_fail(void **state) {
    (void)state;
    const char *source = "{% macro f(a) %}{{ a | upper }}{% endmacro %}{% for m in messages %}{{ f(m.content) ~ m | tojson }}{% endfor %}"
                         "{% generation %}{{ [1, 2] | sort }}{% endgeneration %}";
    sn_chat_input in = {.messages = three_turns, .bos_token = "<s>"};
    sn_chat_text out = {0};
    sn_alloc_fail_at(-1);
    assert_ok(render(source, strlen(source), &in, &out));
    long count = sn_alloc_fail_at(-1);
    assert_true(count > 10);
    for (long i = 0; i < count; i++) {
        sn_alloc_fail_at(i);
        sn_status s = render(source, strlen(source), &in, &out);
        sn_alloc_fail_at(-1);
        assert_int_equal(s, SN_ERR_NO_MEMORY);
    }
    sn_chat_text_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_transformers_does), cmocka_unit_test(expressions_as_jinja2_does), cmocka_unit_test(assistant_turns),
        cmocka_unit_test(user_text_is_told_apart),      cmocka_unit_test(hostile_templates_end),      cmocka_unit_test(long_numbers_end),
        cmocka_unit_test(errors_name_line_and_cause),   cmocka_unit_test(allocations_may_fail),
    };
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
