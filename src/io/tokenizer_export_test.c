#include "support/support.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/tokenizer.h"
#include "io/tokenizer_export.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/tokenizer/"

static void read_golden(const char *name, char **data, size_t *size) { assert_ok(sn_file_read_all(name, 64 << 20, data, size)); }

/* Both tokenizers give the same ids, alone and behind each other's text. */
static void assert_same(const sn_tokenizer *a, const sn_tokenizer *b) {
    json_t *root = json_load_file(GOLDEN "fragments.json", JSON_ALLOW_NUL, NULL), *texts = json_object_get(root, "texts"), *item;
    size_t i;
    char before[4096] = "";
    assert_true(json_array_size(texts) > 100);
    json_array_foreach(texts, i, item) {
        sn_ids x = {0}, y = {0};
        sn_str text = {0};
        sn_str_add(&text, before);
        sn_str_append(&text, json_string_value(item), json_string_length(item));
        unsigned flags = SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL;
        assert_ok(sn_tokenizer_encode(a, text.data, text.size, flags, &x));
        assert_ok(sn_tokenizer_encode(b, text.data, text.size, flags, &y));
        if (x.size != y.size || memcmp(x.data, y.data, x.size * sizeof *x.data)) fail_msg("text %zu: other ids: %s", i, text.data);
        if (json_string_length(item) < 64) snprintf(before, sizeof before, "%s", json_string_value(item));
        sn_ids_free(&x);
        sn_ids_free(&y);
        sn_str_free(&text);
    }
    json_decref(root);
    assert_int_equal(sn_tokenizer_bos(a), sn_tokenizer_bos(b));
    assert_int_equal(sn_tokenizer_eos(a), sn_tokenizer_eos(b));
    assert_int_equal(sn_tokenizer_pad(a), sn_tokenizer_pad(b));
}

static sn_tokenizer *from_texts(const char *json, size_t size, const char *config, size_t config_size) {
    sn_tokenizer *t;
    assert_ok(sn_tokenizer_from_json("t.json", json, size, config, config_size, &t));
    return t;
}

/* Writes the keys into a GGUF of one tensor. */
static sn_status write_gguf(const char *path, const sn_tokenizer_files *files) {
    sn_gguf_writer w;
    float zero = 0;
    sn_shape shape = sn_shape_of(1);
    assert_ok(sn_gguf_write_open(path, 0, &w));
    sn_status s = sn_gguf_add_tokenizer(&w, files);
    if (s == SN_OK) s = sn_gguf_add_tensor(&w, "t", SN_F32, &shape);
    if (s == SN_OK) s = sn_gguf_write_begin(&w);
    if (s == SN_OK) s = sn_gguf_write(&w, 0, 0, &zero, sizeof zero);
    if (s == SN_OK) s = sn_gguf_write_finish(&w);
    sn_gguf_write_close(&w);
    return s;
}

/* tokenizer.json -> GGUF -> tokenizer.json, each read back by its own reader. */
static void there_and_back(const char *golden, const char *pre) {
    static const char config[] = "{\"add_bos_token\": false}";
    char path[600], name[600], *json;
    size_t size;
    const int64_t eos = 0;
    sn_str json2 = {0}, config2 = {0};
    sn_gguf g;
    sn_tokenizer *in_gguf, *again;
    const char *found;
    snprintf(name, sizeof name, GOLDEN "%s.json", golden);
    read_golden(name, &json, &size);
    sn_tokenizer *original = from_texts(json, size, config, strlen(config));
    snprintf(path, sizeof path, "%s/t.gguf", test_dir("tokenizer_export"));
    sn_tokenizer_files files = {.name = name,
                                .json = json,
                                .json_size = size,
                                .config = config,
                                .config_size = strlen(config),
                                .eos_ids = &eos,
                                .eos_count = 1,
                                .vocab_size = sn_tokenizer_size(original) + 3};
    assert_ok(write_gguf(path, &files));
    assert_ok(sn_gguf_open(path, &g));
    assert_ok(sn_gguf_get_string(&g, "tokenizer.ggml.pre", &found));
    assert_string_equal(found, pre);
    assert_ok(sn_tokenizer_from_gguf(&g, &in_gguf));
    assert_int_equal(sn_tokenizer_size(in_gguf), files.vocab_size);
    assert_ok(sn_tokenizer_json_of_gguf(&g, 128, &json2, &config2));
    again = from_texts(json2.data, json2.size, config2.data, config2.size);
    assert_same(again, in_gguf);
    assert_ok(sn_tokenizer_add_eos(original, 0));
    assert_same(original, in_gguf);
    sn_tokenizer_close(original);
    sn_tokenizer_close(in_gguf);
    sn_tokenizer_close(again);
    sn_gguf_close(&g);
    sn_str_free(&json2);
    sn_str_free(&config2);
    sn_free(json);
}

static void smollm(void **state) { (void)state, there_and_back("smollm", "smollm"); }
static void llama3(void **state) { (void)state, there_and_back("llama3", "llama-bpe"); }
static void qwen2(void **state) { (void)state, there_and_back("qwen2", "qwen2"); }
static void gpt2(void **state) { (void)state, there_and_back("gpt2", "gpt-2"); }
static void llama2(void **state) { (void)state, there_and_back("llama2", "default"); }

/* A SentencePiece vocabulary: its merges follow from the scores. */
static void scores_become_merges(void **state) {
    (void)state;
    sn_gguf g;
    sn_tokenizer *in_gguf;
    sn_str json = {0}, config = {0};
    assert_ok(sn_gguf_open(GOLDEN "spm.gguf", &g));
    assert_ok(sn_tokenizer_from_gguf(&g, &in_gguf));
    assert_ok(sn_tokenizer_json_of_gguf(&g, 128, &json, &config));
    sn_tokenizer *again = from_texts(json.data, json.size, config.data, config.size);
    assert_same(again, in_gguf);
    sn_tokenizer_close(in_gguf);
    sn_tokenizer_close(again);
    sn_gguf_close(&g);
    sn_str_free(&json);
    sn_str_free(&config);
}

/* What GGUF cannot say is refused, not written wrongly. */
static void refused(void **state) {
    (void)state;
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"]]}"
    static const struct {
        const char *json, *says;
        int64_t vocab_size;
    } cases[] = {
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," MODEL "}", "beyond the embedding's 2 rows", 2},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}," MODEL "}", "no name for this pre-tokenizer", 3},
        {"{" MODEL "}", "no name for this pre-tokenizer", 3},
        {"{\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," MODEL "}",
         "no name for this pre-tokenizer", 3},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":["
         "\"a\",0],\"sep\":[\"b\",1]}," MODEL "}",
         "around a text", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[600];
        sn_tokenizer_files files = {
            .name = "t.json", .json = cases[i].json, .json_size = strlen(cases[i].json), .vocab_size = cases[i].vocab_size};
        snprintf(path, sizeof path, "%s/t.gguf", test_dir("tokenizer_export"));
        assert_int_equal(write_gguf(path, &files), SN_ERR_UNSUPPORTED);
        if (!strstr(sn_error_text(), cases[i].says)) fail_msg("case %zu says \"%s\"", i, sn_error_text());
        assert_false(sn_path_exists(path));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(smollm),
                                       cmocka_unit_test(llama3),
                                       cmocka_unit_test(qwen2),
                                       cmocka_unit_test(gpt2),
                                       cmocka_unit_test(llama2),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(scores_become_merges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
