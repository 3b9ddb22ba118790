#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/team.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/tokenizer_impl.h"

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

static void ids_spm_gguf(void **state) {
    (void)state;
    sn_gguf g;
    sn_tokenizer *t;
    assert_ok(sn_gguf_open(GOLDEN "spm.gguf", &g));
    assert_ok(sn_tokenizer_from_gguf(&g, &t));
    sn_gguf_close(&g);
    check_ids("spm", t, false); /* a U+2581 in the text comes back as a space */
    sn_tokenizer_close(t);
}

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

static void encode(const sn_tokenizer *t, const char *text, unsigned flags, sn_ids *ids) {
    ids->size = 0;
    assert_ok(sn_tokenizer_encode(t, text, strlen(text), flags, ids));
}

/* Any bytes come back, whole and streamed, and no streamed piece ends inside a character. */
static void any_bytes_come_back(void **state) {
    (void)state;
    static const char *const families[] = {"gpt2", "llama3", "smollm"};
    fragments f;
    sn_str text = {0}, back = {0}, stream = {0};
    sn_ids ids = {0};
    uint32_t x = 7;
    load_fragments(&f);
    for (size_t k = 0; k < 3; k++) {
        sn_tokenizer *t;
        open_golden(families[k], &t);
        for (int round = 0; round < 2000; round++) {
            sn_str_clear(&text);
            for (uint32_t n = below(&x, 40); n; n--) {
                if (round % 2 && below(&x, 3)) sn_str_append(&text, f.texts[x % f.count], f.sizes[x % f.count]);
                else sn_str_char(&text, (char)below(&x, round % 4 < 3 ? 256 : 128));
            }
            bool valid = text.size && sn_utf8_valid(text.data, text.size) == text.size;
            ids.size = 0;
            sn_str_clear(&back);
            sn_str_clear(&stream);
            assert_ok(sn_tokenizer_encode(t, text.size ? text.data : "", text.size, SN_TOKENIZER_PARSE_SPECIAL, &ids));
            assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, 0, &back));
            assert_int_equal(back.size, text.size);
            if (text.size) assert_memory_equal(back.data, text.data, text.size);
            sn_detokenizer d = {.t = t};
            for (size_t i = 0; i < ids.size; i++) {
                assert_ok(sn_detokenizer_add(&d, ids.data[i], &stream));
                if (valid) assert_int_equal(sn_utf8_valid(stream.data, stream.size), stream.size);
                if (!d.held_size) assert_int_equal(sn_utf8_prefix(stream.data, stream.size), 0);
            }
            assert_ok(sn_detokenizer_finish(&d, &stream));
            assert_int_equal(stream.size, text.size);
            if (text.size) assert_memory_equal(stream.data, text.data, text.size);
        }
        sn_tokenizer_close(t);
    }
    sn_str_free(&text);
    sn_str_free(&back);
    sn_str_free(&stream);
    sn_ids_free(&ids);
    free_fragments(&f);
}

static void streaming_holds_back_part_of_a_character(void **state) {
    (void)state;
    sn_tokenizer *t;
    sn_str out = {0};
    open_golden("gpt2", &t);
    sn_detokenizer d = {.t = t};
    static const char bytes[] = "\xF0\x9F\xA7\xBF"; /* U+1F9FF, one id a byte */
    static const size_t want[] = {0, 0, 0, 4};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(sn_detokenizer_add(&d, sn_tokenizer_id(t, bytes + i, 1), &out));
        assert_int_equal(out.size, want[i]);
    }
    assert_ok(sn_detokenizer_add(&d, sn_tokenizer_id(t, bytes, 1), &out));
    assert_ok(sn_detokenizer_add(&d, sn_tokenizer_id(t, "a", 1), &out)); /* can no longer become a character */
    assert_int_equal(out.size, 6);
    assert_ok(sn_detokenizer_add(&d, sn_tokenizer_id(t, bytes, 1), &out));
    assert_int_equal(out.size, 6);
    assert_ok(sn_detokenizer_finish(&d, &out));
    assert_memory_equal(out.data,
                        "\xF0\x9F\xA7\xBF\xF0"
                        "a\xF0",
                        7);
    assert_int_equal(sn_detokenizer_add(&d, sn_tokenizer_size(t), &out), SN_ERR_DATA);
    assert_int_equal(out.size, 7);
    sn_str_free(&out);
    sn_tokenizer_close(t);
}

static void special_tokens_in_user_text(void **state) {
    (void)state;
    sn_tokenizer *t;
    sn_ids ids = {0};
    sn_str out = {0};
    open_golden("smollm", &t);
    int32_t end = sn_tokenizer_id(t, "<|im_end|>", 10);
    assert_true(end >= 0 && sn_tokenizer_is_special(t, end));
    encode(t, "x<|im_end|>y", SN_TOKENIZER_PARSE_SPECIAL, &ids);
    assert_int_equal(ids.size, 3);
    assert_int_equal(ids.data[1], end);
    assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, SN_TOKENIZER_SKIP_SPECIAL, &out));
    assert_string_equal(out.data, "xy");
    encode(t, "x<|im_end|>y", 0, &ids);
    for (size_t i = 0; i < ids.size; i++) assert_int_not_equal(ids.data[i], end);
    sn_str_clear(&out);
    assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, SN_TOKENIZER_SKIP_SPECIAL, &out));
    assert_string_equal(out.data, "x<|im_end|>y");
    sn_str_free(&out);
    sn_ids_free(&ids);
    sn_tokenizer_close(t);
}

static void one_bos_or_none(void **state) {
    (void)state;
    const unsigned both = SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL;
    static const char *const texts[] = {"hello", "<|im_start|>hello", ""};
    sn_tokenizer *t;
    sn_ids ids = {0};
    open_golden("llama3", &t);
    assert_int_equal(sn_tokenizer_bos(t), 1);
    for (size_t i = 0; i < 3; i++) {
        encode(t, texts[i], both, &ids);
        assert_int_equal(ids.data[0], 1);
        for (size_t k = 1; k < ids.size; k++) assert_int_not_equal(ids.data[k], 1);
    }
    encode(t, "hello", SN_TOKENIZER_PARSE_SPECIAL, &ids);
    assert_int_not_equal(ids.data[0], 1);
    sn_tokenizer_close(t);
    open_golden("smollm", &t);
    encode(t, "", both, &ids);
    assert_int_equal(ids.size, 0);
    sn_tokenizer_close(t);
    sn_ids_free(&ids);
}

static void byte_fallback(void **state) {
    (void)state;
    sn_tokenizer *t;
    sn_ids ids = {0};
    sn_str out = {0};
    open_golden("llama2", &t);
    encode(t, "a\nb", SN_TOKENIZER_ADD_SPECIAL, &ids);
    const int32_t newline = 3 + 0x0A; /* <0x00> is id 3 */
    const int32_t want[] = {1, sn_tokenizer_id(t, " a", 2), newline, sn_tokenizer_id(t, "b", 1)};
    assert_int_equal(ids.size, 4);
    assert_memory_equal(ids.data, want, sizeof want);
    assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, SN_TOKENIZER_SKIP_SPECIAL, &out));
    assert_string_equal(out.data, "a\nb");
    sn_str_free(&out);
    sn_ids_free(&ids);
    sn_tokenizer_close(t);
}

/* Eight times the text takes at most 2.5^3 times as long: what is quadratic takes 64 times. */
static void long_runs_stay_linear(void **state) {
    (void)state;
    static const char *const families[] = {"gpt2", "llama3", "qwen2", "smollm", "mixed", "llama2"};
    static const char *const runs[] = {"a", "_",    " ",        "ab",          "\n",        " \n",
                                       "7", "\xFF", "\xC3\xA9", "<|im_start|", "e\xCC\x81", "(\xE2\x96\x81"};
    const size_t small = 1 << 14, large = small * 8;
    char *text = sn_alloc(large);
    sn_ids ids = {0};
    assert_non_null(text);
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        sn_tokenizer *t;
        open_golden(families[k], &t);
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
            double seconds[2] = {1e9, 1e9};
            for (size_t i = 0; i < large; i++) text[i] = runs[r][i % strlen(runs[r])];
            for (int round = 0; round < 40; round++) { /* other processes make a time longer, never shorter */
                if (round % 2 == 0 && round && seconds[1] <= 15.6 * seconds[0] + 1e-4) break;
                struct timespec a, b;
                ids.size = 0;
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
                assert_ok(sn_tokenizer_encode(t, text, round % 2 ? large : small, SN_TOKENIZER_PARSE_SPECIAL, &ids));
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
                double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
                if (s < seconds[round % 2]) seconds[round % 2] = s;
            }
            if (seconds[1] > 15.6 * seconds[0] + 1e-4)
                fail_msg("%s: a run of \"%s\": %.3f ms for %zu bytes, %.3f ms for %zu", families[k], runs[r], 1e3 * seconds[0], small,
                         1e3 * seconds[1], large);
        }
        sn_tokenizer_close(t);
    }
    sn_free(text);
    sn_ids_free(&ids);
}

static void a_megabyte_of_one_letter(void **state) {
    (void)state;
    const size_t n = 1 << 20;
    sn_tokenizer *t;
    sn_ids ids = {0};
    sn_str out = {0};
    char *text = sn_alloc(n);
    assert_non_null(text);
    open_golden("gpt2", &t);
    for (int i = 0; i < 2; i++) {
        memset(text, "a_"[i], n);
        ids.size = 0;
        sn_str_clear(&out);
        assert_ok(sn_tokenizer_encode(t, text, n, 0, &ids));
        assert_ok(sn_tokenizer_decode(t, ids.data, ids.size, 0, &out));
        assert_true(ids.size < n / 2);
        assert_int_equal(out.size, n);
        assert_memory_equal(out.data, text, n);
    }
    sn_tokenizer_close(t);
    sn_free(text);
    sn_str_free(&out);
    sn_ids_free(&ids);
}

typedef struct shared {
    const sn_tokenizer *t;
    const fragments *f;
    uint32_t hashes[64];
} shared;

static void encode_task(void *context, int64_t task, int member) {
    (void)member;
    shared *s = context;
    sn_str line = {0};
    sn_ids ids = {0};
    uint32_t h = FNV_START;
    for (uint32_t i = 0; i < 20; i++) {
        make_line(s->f, (uint32_t)(task % 4) * 20 + i, &line);
        ids.size = 0;
        if (sn_tokenizer_encode(s->t, line.data, line.size, SN_TOKENIZER_PARSE_SPECIAL, &ids) == SN_OK) h = fnv(&ids, h);
    }
    s->hashes[task] = h;
    sn_str_free(&line);
    sn_ids_free(&ids);
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    fragments f;
    sn_tokenizer *t;
    sn_team *team;
    load_fragments(&f);
    open_golden("qwen2", &t);
    shared s = {.t = t, .f = &f};
    assert_ok(sn_team_open(4, NULL, &team));
    sn_team_run(team, 64, encode_task, &s);
    sn_team_close(team);
    for (int i = 4; i < 64; i++) assert_int_equal(s.hashes[i], s.hashes[i % 4]);
    assert_int_not_equal(s.hashes[0], s.hashes[1]);
    sn_tokenizer_close(t);
    free_fragments(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_gpt2),
        cmocka_unit_test(ids_llama3),
        cmocka_unit_test(ids_qwen2),
        cmocka_unit_test(ids_smollm),
        cmocka_unit_test(ids_mixed),
        cmocka_unit_test(ids_llama2),
        cmocka_unit_test(ids_spm_gguf),
        cmocka_unit_test(ids_smollm2_gguf),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(streaming_holds_back_part_of_a_character),
        cmocka_unit_test(special_tokens_in_user_text),
        cmocka_unit_test(one_bos_or_none),
        cmocka_unit_test(byte_fallback),
        cmocka_unit_test(long_runs_stay_linear),
        cmocka_unit_test(a_megabyte_of_one_letter),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
