#include "support/support.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/gguf.h"
#include "io/tokenizer.h"

#define KEY "tokenizer.ggml."

/* What a file of the test says; a test changes one field. -2: the key is absent. */
typedef struct contents {
    const char *model, *pre;
    const char *tokens[8];
    int32_t types[8], type_count;
    float scores[8];
    int32_t score_count;
    const char *merges[4];
    int bos, eos, add_bos, add_eos, add_space;
} contents;

static const contents byte_level = {.model = "gpt2",
                                    .pre = "smollm",
                                    .tokens = {"<s>", "</s>", "a", "b", "ab", "1", "11"},
                                    .types = {3, 3, 1, 1, 1, 1, 1},
                                    .type_count = 7,
                                    .merges = {"a b", "1 1"},
                                    .bos = 0,
                                    .eos = 1,
                                    .add_bos = -2,
                                    .add_eos = -2,
                                    .add_space = -2};

static const contents scored = {.model = "llama",
                                .tokens = {"<unk>", "<s>", "<", "s", ">", "<s", "\xE2\x96\x81", "<0x41>"},
                                .types = {2, 3, 1, 1, 1, 1, 1, 6},
                                .type_count = 8,
                                .scores = {0, 0, -5, -6, -7, -1, -8, 0},
                                .score_count = 8,
                                .bos = 1,
                                .eos = -2,
                                .add_bos = 0,
                                .add_eos = -2,
                                .add_space = -2};

static void add_texts(sn_gguf_writer *w, const char *key, const char *const *texts, size_t most) {
    sn_gguf_string items[8];
    size_t n = 0;
    for (; n < most && texts[n]; n++) items[n] = (sn_gguf_string){texts[n], strlen(texts[n])};
    if (n) assert_ok(sn_gguf_add_strings(w, key, items, n));
}

static sn_status open_contents(const contents *c, sn_tokenizer **t) {
    char *path = sn_path_join(test_dir("tokenizer_gguf"), "t.gguf");
    sn_gguf_writer w;
    sn_gguf g;
    assert_ok(sn_gguf_write_open(path, 0, &w));
    if (c->model) assert_ok(sn_gguf_add_string(&w, KEY "model", c->model, strlen(c->model)));
    if (c->pre) assert_ok(sn_gguf_add_string(&w, KEY "pre", c->pre, strlen(c->pre)));
    add_texts(&w, KEY "tokens", c->tokens, 8);
    if (c->type_count) assert_ok(sn_gguf_add_i32s(&w, KEY "token_type", c->types, (size_t)c->type_count));
    if (c->score_count) assert_ok(sn_gguf_add_f32s(&w, KEY "scores", c->scores, (size_t)c->score_count));
    add_texts(&w, KEY "merges", c->merges, 4);
    if (c->bos != -2) assert_ok(sn_gguf_add_u32(&w, KEY "bos_token_id", (uint32_t)c->bos));
    if (c->eos != -2) assert_ok(sn_gguf_add_u32(&w, KEY "eos_token_id", (uint32_t)c->eos));
    if (c->model && !strcmp(c->model, "llama")) assert_ok(sn_gguf_add_u32(&w, KEY "unknown_token_id", 0));
    if (c->add_bos != -2) assert_ok(sn_gguf_add_bool(&w, KEY "add_bos_token", c->add_bos));
    if (c->add_eos != -2) assert_ok(sn_gguf_add_bool(&w, KEY "add_eos_token", c->add_eos));
    if (c->add_space != -2) assert_ok(sn_gguf_add_bool(&w, KEY "add_space_prefix", c->add_space));
    assert_ok(sn_gguf_write_begin(&w));
    assert_ok(sn_gguf_write_finish(&w));
    sn_gguf_write_close(&w);
    assert_ok(sn_gguf_open(path, &g));
    sn_status status = sn_tokenizer_from_gguf(&g, t);
    sn_gguf_close(&g);
    sn_remove_tree(path);
    sn_free(path);
    return status;
}

static void check(const contents *c, const char *text, unsigned flags, const char *want) {
    sn_tokenizer *t;
    sn_ids ids = {0};
    sn_str found = {0};
    assert_ok(open_contents(c, &t));
    assert_ok(sn_tokenizer_encode(t, text, strlen(text), flags, &ids));
    for (size_t i = 0; i < ids.size; i++) sn_str_printf(&found, "%s%d", i ? " " : "", ids.data[i]);
    assert_string_equal(found.data ? found.data : "", want);
    sn_str_free(&found);
    sn_ids_free(&ids);
    sn_tokenizer_close(t);
}

static void byte_level_files(void **state) {
    (void)state;
    const unsigned both = SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL;
    contents c = byte_level;
    check(&c, "ab11", both, "4 5 5"); /* smollm: digits stand alone, no BOS */
    c.pre = "gpt-2";
    check(&c, "ab11", both, "4 6");
    c.pre = "llama-bpe"; /* BOS unless the file says otherwise */
    check(&c, "ab11</s>", both, "0 4 6 1");
    check(&c, "<s>ab", both, "0 4");
    check(&c, "ab", 0, "4");
    c.add_bos = 0;
    c.add_eos = 1;
    check(&c, "ab", both, "4 1");
    c.eos = -2;
    sn_tokenizer *t;
    assert_int_equal(open_contents(&c, &t), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "add_eos_token without"));
}

static void scored_files(void **state) {
    (void)state;
    contents c = scored;
    check(&c, "s", 0, "6 3");
    check(&c, "<s>", SN_TOKENIZER_PARSE_SPECIAL, "1");
    check(&c, "<s>", 0, "6 5 4"); /* "<s" and ">" would make the control token */
    check(&c, "A?s", 0, "6 7 0 3");
    c.add_space = 0;
    check(&c, "s s", 0, "3 6 3");
    c.add_bos = 1;
    check(&c, "", SN_TOKENIZER_ADD_SPECIAL, "1");
}

static void refused(contents c, sn_status status, const char *says) {
    sn_tokenizer *t = NULL;
    sn_status found = open_contents(&c, &t);
    if (found != status || !strstr(sn_error_text(), says) || !strstr(sn_error_text(), "t.gguf") || t)
        fail_msg("%s: \"%s\", wanted \"%s\"", sn_status_name(found), sn_error_text(), says);
}

static void malformed_files(void **state) {
    (void)state;
    contents c;
#define REFUSED(base, change, status, says) (c = base, change, refused(c, status, says))
    REFUSED(byte_level, c.model = NULL, SN_ERR_FORMAT, KEY "model");
    REFUSED(byte_level, c.model = "bert", SN_ERR_UNSUPPORTED, "found \"bert\"");
    REFUSED(byte_level, c.pre = NULL, SN_ERR_FORMAT, KEY "pre");
    REFUSED(byte_level, c.pre = "smoll", SN_ERR_UNSUPPORTED, "\"smoll\"");
    REFUSED(byte_level, c.pre = "smollm starcoder", SN_ERR_UNSUPPORTED, "\"smollm starcoder\"");
    REFUSED(byte_level, c.pre = "", SN_ERR_UNSUPPORTED, KEY "pre");
    REFUSED(byte_level, c.tokens[0] = NULL, SN_ERR_FORMAT, KEY "tokens");
    REFUSED(byte_level, c.type_count = 6, SN_ERR_FORMAT, "6 types for 7 tokens");
    REFUSED(byte_level, c.merges[0] = NULL, SN_ERR_FORMAT, KEY "merges");
    REFUSED(byte_level, c.merges[1] = "ab", SN_ERR_FORMAT, "item 1 is not two tokens");
    REFUSED(byte_level, c.merges[1] = " a", SN_ERR_FORMAT, "item 1 is not two tokens");
    REFUSED(byte_level, c.merges[1] = "a z", SN_ERR_FORMAT, "merges[1]: token \"z\"");
    REFUSED(byte_level, c.bos = 7, SN_ERR_FORMAT, "bos_token: id 7");
    REFUSED(byte_level, c.eos = 1 << 30, SN_ERR_FORMAT, KEY "eos_token_id");
    REFUSED(byte_level, (c.bos = -1, c.add_bos = 1), SN_ERR_FORMAT, "add_bos_token without");
    REFUSED(byte_level, c.add_space = 1, SN_ERR_UNSUPPORTED, "add_space_prefix");
    REFUSED(scored, c.score_count = 7, SN_ERR_FORMAT, "7 scores for 8 tokens");
    REFUSED(scored, c.score_count = 0, SN_ERR_FORMAT, KEY "scores");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_files),
        cmocka_unit_test(scored_files),
        cmocka_unit_test(malformed_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
