#include "support/support.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "io/tokenizer.h"

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3}"
#define MODEL "\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\",\"b\"]]}"
#define BYTES "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define PRE(steps) "{\"pre_tokenizer\":" steps "," MODEL "}"

static sn_status open_text(const char *json, const char *config, sn_tokenizer **t) {
    return sn_tokenizer_from_json("t.json", json, strlen(json), config, config ? strlen(config) : 0, t);
}

/* Every message names the file and the key. */
static void malformed_files(void **state) {
    (void)state;
    static const struct {
        const char *json;
        sn_status status;
        const char *says;
    } cases[] = {
        {"", SN_ERR_FORMAT, "t.json"},
        {"[]", SN_ERR_FORMAT, "wanted object"},
        {"{}", SN_ERR_FORMAT, "model is missing"},
        {"{" MODEL, SN_ERR_FORMAT, "t.json"},
        {"{" MODEL "} x", SN_ERR_FORMAT, "t.json"},
        {"{" MODEL "," MODEL "}", SN_ERR_FORMAT, "model stands twice"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", SN_ERR_UNSUPPORTED, "model.type: wanted BPE, found \"WordPiece\""},
        {"{\"model\":{\"merges\":[]}}", SN_ERR_FORMAT, "model.vocab is missing"},
        {"{\"model\":{" VOCAB "}}", SN_ERR_FORMAT, "model.merges is missing"},
        {"{\"model\":{" VOCAB "," VOCAB "}}", SN_ERR_FORMAT, "vocab stands twice"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]}}", SN_ERR_FORMAT, "vocabulary is empty"},
        {"{\"model\":{\"vocab\":[],\"merges\":[]}}", SN_ERR_FORMAT, "vocab"},
        {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", SN_ERR_FORMAT, "id -1"},
        {"{\"model\":{\"vocab\":{\"a\":4194304},\"merges\":[]}}", SN_ERR_FORMAT, "id 4194304"},
        {"{\"model\":{\"vocab\":{\"a\":99999999999999999999},\"merges\":[]}}", SN_ERR_FORMAT, "vocab"},
        {"{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", SN_ERR_FORMAT, "vocab"},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", SN_ERR_FORMAT, "id 0 stands for \"a\" and for \"b\""},
        {"{\"model\":{" VOCAB ",\"merges\":[\"ab\"]}}", SN_ERR_FORMAT, "merges[0]"},
        {"{\"model\":{" VOCAB ",\"merges\":[\"a b\",\"a \"]}}", SN_ERR_FORMAT, "merges[1]"},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"a\",\"b\",\"c\"]]}}", SN_ERR_FORMAT, "merges[0]"},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"a\"]]}}", SN_ERR_FORMAT, "merges[0]"},
        {"{\"model\":{" VOCAB ",\"merges\":[7]}}", SN_ERR_FORMAT, "merges[0]"},
        {"{\"model\":{" VOCAB ",\"merges\":[\"a b\",\"a z\"]}}", SN_ERR_FORMAT, "merges[1]: token \"z\""},
        {"{\"model\":{" VOCAB ",\"merges\":[\"a c\"]}}", SN_ERR_FORMAT, "merges[0]: the result \"ac\""},
        {"{\"model\":{" VOCAB ",\"merges\":[],\"unk_token\":\"?\"}}", SN_ERR_FORMAT, "model.unk_token: \"?\""},
        {"{\"model\":{" VOCAB ",\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", SN_ERR_UNSUPPORTED, "\"</w>\""},
        {"{\"added_tokens\":[{\"id\":9}]," MODEL "}", SN_ERR_FORMAT, "added_tokens[0]"},
        {"{\"added_tokens\":[{\"content\":\"x\"}]," MODEL "}", SN_ERR_FORMAT, "id is missing"},
        {"{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]," MODEL "}", SN_ERR_FORMAT, "added_tokens[0].id: 0 is \"a\""},
        {"{\"added_tokens\":[{\"id\":5,\"content\":\"x\"},{\"id\":5,\"content\":\"y\"}]," MODEL "}", SN_ERR_FORMAT,
         "added_tokens[1].id: 5"},
        {"{\"added_tokens\":[{\"id\":5,\"content\":\"x\",\"special\":1}]," MODEL "}", SN_ERR_FORMAT, "added_tokens[0]"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"), SN_ERR_FORMAT, "pattern \"(\""},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z&&[^b]]\"},\"behavior\":\"Isolated\"}"), SN_ERR_UNSUPPORTED,
         "class within a class"},
        {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"isolated\"}"), SN_ERR_UNSUPPORTED, "behavior \"isolated\""},
        {PRE("{\"type\":\"Split\",\"behavior\":\"Isolated\"}"), SN_ERR_UNSUPPORTED, "type \"Split\""},
        {PRE("{\"type\":\"Unigram\"}"), SN_ERR_UNSUPPORTED, "pre_tokenizer: type \"Unigram\""},
        {PRE("{\"type\":\"Digits\",\"pretokenizers\":[]}"), SN_ERR_FORMAT, "wanted type Sequence"},
        {PRE("{}"), SN_ERR_FORMAT, "pre_tokenizer: t.json:1:"},
        {PRE("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}"), SN_ERR_UNSUPPORTED,
         "after ByteLevel"},
        {"{\"normalizer\":{\"type\":\"Lowercase\"}," MODEL "}", SN_ERR_UNSUPPORTED, "normalizer: type \"Lowercase\""},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"b\"}," MODEL "}", SN_ERR_UNSUPPORTED,
         "\"Replace\""},
        {"{\"decoder\":{\"type\":\"WordPiece\"}," MODEL "}", SN_ERR_UNSUPPORTED, "decoder: type \"WordPiece\""},
        {"{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}," MODEL "}", SN_ERR_UNSUPPORTED, "U+2581"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}},{\"Sequence\":{\"id\":\"A\"}}]"
         "}," MODEL "}",
         SN_ERR_FORMAT, "special_tokens has no \"s\""},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," MODEL "}", SN_ERR_FORMAT, "single has no Sequence"},
        {"{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",77],\"sep\":[\"b\",1]}," MODEL "}", SN_ERR_FORMAT,
         "post_processor: id 77"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_tokenizer *t = NULL;
        sn_status status = open_text(cases[i].json, NULL, &t);
        if (status != cases[i].status || !strstr(sn_error_text(), cases[i].says) || !strstr(sn_error_text(), "t.json") || t)
            fail_msg("%s: %s: \"%s\", wanted \"%s\"", cases[i].json, sn_status_name(status), sn_error_text(), cases[i].says);
    }
}

static void deep_sequences_end(void **state) {
    (void)state;
    sn_str json = {0};
    sn_tokenizer *t;
    sn_str_add(&json, "{\"normalizer\":");
    for (int i = 0; i < 40; i++) sn_str_add(&json, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 40; i++) sn_str_add(&json, "]}");
    sn_str_add(&json, "," MODEL "}");
    assert_int_equal(open_text(json.data, NULL, &t), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "nest over 8 deep"));
    sn_str_free(&json);
}

static void check(const char *json, const char *config, const char *text, unsigned flags, const char *want) {
    sn_tokenizer *t;
    sn_ids ids = {0};
    sn_str found = {0};
    assert_ok(open_text(json, config, &t));
    assert_ok(sn_tokenizer_encode(t, text, strlen(text), flags, &ids));
    for (size_t i = 0; i < ids.size; i++) sn_str_printf(&found, "%s%d", i ? " " : "", ids.data[i]);
    assert_string_equal(found.data ? found.data : "", want);
    sn_str_free(&found);
    sn_ids_free(&ids);
    sn_tokenizer_close(t);
}

static void merges_and_unknown_bytes(void **state) {
    (void)state;
    const char *unk = "{" BYTES ",\"model\":{" VOCAB ",\"merges\":[\"a b\"],\"unk_token\":\"c\"}}";
    const char *fuse = "{" BYTES ",\"model\":{" VOCAB ",\"merges\":[\"a b\"],\"unk_token\":\"c\",\"fuse_unk\":true}}";
    check("{" BYTES "," MODEL "}", NULL, "abcab", 0, "2 3 2");
    check("{" BYTES "," MODEL "}", NULL, "a!b", 0, "0 1"); /* bytes without a token vanish; ! was a word of its own */
    check("{" BYTES "," MODEL "}", NULL, "axb", 0, "2");   /* in a word before the merges, as in the reference */
    check(unk, NULL, "axyb", 0, "0 3 3 1");
    check(fuse, NULL, "axyb", 0, "0 3 1");
    /* A special token is not made by merging plain text, even where the file's merges would make it. */
    check("{\"added_tokens\":[{\"id\":2,\"content\":\"ab\",\"special\":true}]," BYTES "," MODEL "}", NULL, "ab", 0, "0 1");
    check("{\"added_tokens\":[{\"id\":2,\"content\":\"ab\",\"special\":true}]," BYTES "," MODEL "}", NULL, "ab", SN_TOKENIZER_PARSE_SPECIAL,
          "2");
    check("{" BYTES "," MODEL "}", NULL, "", 0, "");
}

static void config_names_bos_and_eos(void **state) {
    (void)state;
    const char *json =
        "{\"added_tokens\":[{\"id\":7,\"content\":\"<s>\",\"special\":true},{\"id\":8,\"content\":\"</s>\",\"special\":true}]," BYTES
        "," MODEL "}";
    const char *config =
        "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"pad_token\":null,\"add_bos_token\":true,\"add_eos_token\":true,"
        "\"x\":[1]}";
    check(json, NULL, "ab", SN_TOKENIZER_ADD_SPECIAL, "2");
    check(json, config, "ab", SN_TOKENIZER_ADD_SPECIAL, "7 2 8");
    check(json, config, "<s>ab", SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL, "7 2 8");
    check(json, config, "ab", 0, "2");
    sn_tokenizer *t;
    assert_ok(open_text(json, config, &t));
    assert_int_equal(sn_tokenizer_bos(t), 7);
    assert_int_equal(sn_tokenizer_eos(t), 8);
    assert_int_equal(sn_tokenizer_pad(t), -1);
    assert_int_equal(sn_tokenizer_size(t), 9);
    assert_int_equal(sn_tokenizer_id(t, "</s>", 4), 8);
    assert_int_equal(sn_tokenizer_id(t, "zz", 2), -1);
    size_t n;
    assert_null(sn_tokenizer_token(t, 5, &n)); /* a gap */
    assert_null(sn_tokenizer_token(t, -1, &n));
    assert_null(sn_tokenizer_token(t, 9, &n));
    assert_ok(sn_tokenizer_add_eos(t, 3));
    assert_true(sn_tokenizer_is_eos(t, 3) && sn_tokenizer_is_eos(t, 8) && !sn_tokenizer_is_eos(t, 7));
    assert_int_equal(sn_tokenizer_add_eos(t, 9), SN_ERR_FORMAT);
    sn_tokenizer_close(t);
    assert_int_equal(open_text(json, "{\"bos_token\":3}", &t), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "bos_token"));
}

static void added_token_flags(void **state) {
    (void)state;
    const char *json =
        "{\"added_tokens\":[{\"id\":7,\"content\":\"<l>\",\"lstrip\":true,\"normalized\":false},{\"id\":8,\"content\":\"<r>\",\"rstrip\":"
        "true},"
        "{\"id\":9,\"content\":\"bb\",\"single_word\":true},{\"id\":10,\"content\":\"<l><\"},{\"id\":11,\"content\":\"\"}]," BYTES
        ",\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"<\":3},\"merges\":[]}}";
    check(json, NULL, "a  <l> a", 0, "0 7 2 0");
    check(json, NULL, "a <r>\xE2\x80\x83 a", 0, "0 2 8 0");
    check(json, NULL, "bb abb bb_ bb", 0, "9 2 0 1 1 2 1 1 2 9");
    check(json, NULL, "a<l><", 0, "0 7 3"); /* what is looked for before normalization comes first */
}

/* A pattern that needs more stack than the JIT's is interpreted; one that backtracks without end is an error. */
static void greedy_patterns(void **state) {
    (void)state;
    const char *json = PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:(a)|(b))+c\"},\"behavior\":\"Isolated\"}");
    const size_t n = 300000;
    char *text = sn_alloc(n);
    sn_tokenizer *t;
    sn_ids ids = {0};
    assert_non_null(text);
    memset(text, 'a', n);
    text[n - 1] = 'c';
    assert_ok(open_text(json, NULL, &t));
    assert_ok(sn_tokenizer_encode(t, text, n, 0, &ids));
    assert_int_equal(ids.size, n);
    sn_tokenizer_close(t);
    sn_ids_free(&ids);
    sn_free(text);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    const char *json = "{\"added_tokens\":[{\"id\":7,\"content\":\"<s>\",\"special\":true}],\"normalizer\":{\"type\":\"NFC\"}," BYTES
                       "," MODEL ",\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",7],\"sep\":[\"<s>\",7]}}";
    const char *text = "abababababababababababababababababababababababab\xC3\xA9 <s> c\xCC\x81";
    for (long n = 0, done = 0; !done; n++) {
        sn_tokenizer *t = NULL;
        sn_ids ids = {0};
        sn_str out = {0};
        sn_alloc_fail_at(n);
        sn_status status = open_text(json, "{\"bos_token\":\"<s>\"}", &t);
        if (status == SN_OK)
            status = sn_tokenizer_encode(t, text, strlen(text), SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL, &ids);
        if (status == SN_OK) status = sn_tokenizer_decode(t, ids.data, ids.size, 0, &out);
        sn_alloc_fail_at(-1);
        if (status == SN_OK) {
            assert_int_equal(ids.data[0], 7);
            assert_int_equal(ids.data[ids.size - 1], 7);
            done = n > 20;
        } else {
            if (status != SN_ERR_NO_MEMORY) fail_msg("allocation %ld: %s (%s)", n, sn_error_text(), sn_status_name(status));
        }
        sn_tokenizer_close(t);
        sn_ids_free(&ids);
        sn_str_free(&out);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_files),           cmocka_unit_test(deep_sequences_end), cmocka_unit_test(merges_and_unknown_bytes),
        cmocka_unit_test(config_names_bos_and_eos),  cmocka_unit_test(added_token_flags),  cmocka_unit_test(greedy_patterns),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
