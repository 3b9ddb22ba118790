#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/tokenizer.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/tokenizer/"
#define FNV_START 0x811C9DC5u

/* The test lines: put together from fragments exactly as tests/golden/make_tokenizer.py does. */
typedef struct fragments {
    char *texts[512];
    size_t sizes[512], count;
    uint32_t ranges[128][2], range_count;
} fragments;

static void load_fragments(fragments *f) {
    char *data;
    size_t size;
    sn_json r;
    int64_t x;
    assert_ok(sn_file_read_all(GOLDEN "fragments.json", 1 << 20, &data, &size));
    sn_json_start(&r, "fragments.json", data, size);
    *f = (fragments){0};
    assert_ok(sn_json_want(&r, SN_JSON_OBJECT));
    assert_ok(sn_json_want(&r, SN_JSON_KEY));
    assert_ok(sn_json_want(&r, SN_JSON_ARRAY));
    for (;; f->count++) {
        assert_ok(sn_json_next(&r));
        if (r.type == SN_JSON_ARRAY_END) break;
        assert_true(f->count < 512);
        f->texts[f->count] = sn_strndup(r.text, r.size);
        f->sizes[f->count] = r.size;
    }
    assert_ok(sn_json_want(&r, SN_JSON_KEY));
    assert_ok(sn_json_want(&r, SN_JSON_ARRAY));
    for (;; f->range_count++) {
        assert_ok(sn_json_next(&r));
        if (r.type == SN_JSON_ARRAY_END) break;
        assert_true(f->range_count < 128);
        for (int i = 0; i < 2; i++) {
            assert_ok(sn_json_read_i64(&r, &x));
            f->ranges[f->range_count][i] = (uint32_t)x;
        }
        assert_ok(sn_json_want(&r, SN_JSON_ARRAY_END));
    }
    sn_json_end(&r);
    sn_free(data);
}

static void free_fragments(fragments *f) {
    for (size_t i = 0; i < f->count; i++) sn_free(f->texts[i]);
}

static uint32_t below(uint32_t *x, uint32_t n) {
    *x = *x * 1664525 + 1013904223;
    return (*x >> 8) % n;
}

static void add_utf8(sn_str *s, uint32_t c) {
    if (c < 0x80) sn_str_char(s, (char)c);
    else if (c < 0x800) sn_str_printf(s, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 63));
    else if (c < 0x10000) sn_str_printf(s, "%c%c%c", 0xE0 | c >> 12, 0x80 | (c >> 6 & 63), 0x80 | (c & 63));
    else sn_str_printf(s, "%c%c%c%c", 0xF0 | c >> 18, 0x80 | (c >> 12 & 63), 0x80 | (c >> 6 & 63), 0x80 | (c & 63));
}

static void make_line(const fragments *f, uint32_t number, sn_str *out) {
    uint32_t x = number;
    sn_str_clear(out);
    for (int i = 0; i < 4; i++) below(&x, 1);
    for (uint32_t parts = 1 + below(&x, 12); parts; parts--) {
        uint32_t kind = below(&x, 8);
        if (!kind) {
            const uint32_t *range = f->ranges[below(&x, f->range_count)];
            for (uint32_t n = 1 + below(&x, 6); n; n--) add_utf8(out, range[0] + below(&x, range[1] - range[0] + 1));
        } else {
            if (kind <= 3) sn_str_char(out, ' ');
            size_t i = below(&x, (uint32_t)f->count);
            sn_str_append(out, f->texts[i], f->sizes[i]);
        }
    }
    assert_false(out->failed);
}

static uint32_t fnv(const sn_ids *ids, uint32_t h) {
    for (size_t i = 0; i < ids->size; i++)
        for (int shift = 0; shift < 32; shift += 8) h = (h ^ ((uint32_t)ids->data[i] >> shift & 255)) * 0x01000193;
    return h;
}

static void open_golden(const char *family, sn_tokenizer **t) {
    char path[512], *data;
    size_t size;
    snprintf(path, sizeof path, GOLDEN "%s.json", family);
    assert_ok(sn_file_read_all(path, 16 << 20, &data, &size));
    assert_ok(sn_tokenizer_from_json(path, data, size, NULL, 0, t));
    sn_free(data);
}

/* Every line's ids against the reference's. */
static void check_ids(const char *family, const sn_tokenizer *t, bool round_trip) {
    char path[512], *data;
    size_t size, wrong = 0;
    fragments f;
    sn_str line = {0}, back = {0};
    sn_ids ids = {0};
    load_fragments(&f);
    snprintf(path, sizeof path, GOLDEN "%s.ids", family);
    assert_ok(sn_file_read_all(path, 1 << 20, &data, &size));
    const uint32_t *want = (const uint32_t *)data;
    uint32_t lines = (uint32_t)(size / 4 - 1), plain = FNV_START;
    assert_true(lines >= 2000);
    for (uint32_t i = 0; i < lines; i++) {
        make_line(&f, i, &line);
        ids.size = 0;
        assert_ok(sn_tokenizer_encode(t, line.data, line.size, SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL, &ids));
        if (fnv(&ids, FNV_START) != want[i] && wrong++ < 5) {
            print_error("%s: line %u has other ids: ", family, i);
            for (size_t k = 0; k < ids.size; k++) print_error("%d ", ids.data[k]);
            print_error("\n");
        }
        ids.size = 0;
        assert_ok(sn_tokenizer_encode(t, line.data, line.size, 0, &ids));
        plain = fnv(&ids, plain);
        if (!round_trip) continue;
        sn_str_clear(&back);
        assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, 0, &back));
        assert_int_equal(back.size, line.size);
        assert_memory_equal(back.data, line.data, line.size);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(plain, want[lines]);
    sn_free(data);
    sn_str_free(&line);
    sn_str_free(&back);
    sn_ids_free(&ids);
    free_fragments(&f);
}

static void check_family(const char *family, bool round_trip) {
    sn_tokenizer *t;
    open_golden(family, &t);
    check_ids(family, t, round_trip);
    sn_tokenizer_close(t);
}

static void ids_gpt2(void **state) { (void)state, check_family("gpt2", true); }
static void ids_llama3(void **state) { (void)state, check_family("llama3", true); }
static void ids_qwen2(void **state) { (void)state, check_family("qwen2", false); }
static void ids_smollm(void **state) { (void)state, check_family("smollm", true); }
static void ids_mixed(void **state) { (void)state, check_family("mixed", false); }
static void ids_llama2(void **state) { (void)state, check_family("llama2", false); }

static void ids_smollm2_gguf(void **state) {
    (void)state;
    const char *path = getenv("SNUG_TEST_GGUF");
    sn_gguf g;
    sn_tokenizer *t;
    if (!path) skip();
    assert_ok(sn_gguf_open(path, &g));
    assert_ok(sn_tokenizer_from_gguf(&g, &t));
    sn_gguf_close(&g);
    check_ids("smollm2", t, false); /* 21 bytes are not in its vocabulary */
    assert_int_equal(sn_tokenizer_size(t), 49152);
    assert_int_equal(sn_tokenizer_bos(t), 1);
    assert_int_equal(sn_tokenizer_eos(t), 2);
    assert_true(sn_tokenizer_is_eos(t, 0)); /* <|endoftext|> */
    assert_true(sn_tokenizer_bytes(t) < 4 << 20);
    sn_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_gpt2),  cmocka_unit_test(ids_llama3), cmocka_unit_test(ids_qwen2),        cmocka_unit_test(ids_smollm),
        cmocka_unit_test(ids_mixed), cmocka_unit_test(ids_llama2), cmocka_unit_test(ids_smollm2_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
