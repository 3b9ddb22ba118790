#include "support/support.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "io/json.h"
#include "io/names.h"

/* The tokens of a text in short form: {, }, [, ], k(..), s(..), n(..), t, f, 0 and the error's message. */
static const char *tokens(const char *text, size_t size) {
    static sn_str out;
    sn_json r;
    sn_str_clear(&out);
    sn_str_add(&out, "");
    sn_json_start(&r, "t", text, size);
    for (;;) {
        if (sn_json_next(&r) != SN_OK) {
            sn_str_printf(&out, "!%s", sn_error_text());
            break;
        }
        if (r.type == SN_JSON_EOF) break;
        static const char letters[] = "{}[]ksntf0";
        sn_str_char(&out, letters[r.type]);
        if (r.type == SN_JSON_KEY || r.type == SN_JSON_STRING || r.type == SN_JSON_NUMBER) {
            assert_int_equal(r.text[r.size], 0);
            sn_str_char(&out, '(');
            sn_str_append(&out, r.text, r.size);
            sn_str_char(&out, ')');
        }
    }
    sn_json_end(&r);
    return out.data;
}
#define assert_tokens(text, wanted) assert_string_equal(tokens(text, strlen(text)), wanted)

static void reads_tokens(void **state) {
    (void)state;
    assert_tokens("{\"a\": [1, -2.5e+3, true, false, null], \"b\":{} , \"c\":\"\"}", "{k(a)[n(1)n(-2.5e+3)tf0]k(b){}k(c)s()}");
    assert_tokens(" [ ] ", "[]");
    assert_tokens("0", "n(0)");
    assert_tokens("[0.5,1E2,\"\\\\\\\"\\/\\b\\f\\n\\r\\t\"]", "[n(0.5)n(1E2)s(\\\"/\b\f\n\r\t)]");
}

static void decodes_unicode(void **state) {
    (void)state;
    assert_tokens("\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"", "s(A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80)");
    assert_tokens("\"\xc3\xa9\xf0\x9f\x98\x80\"", "s(\xc3\xa9\xf0\x9f\x98\x80)");
    assert_tokens("\"\\ud83d\"", "!t:1:2: unpaired high surrogate \\ud83d");
    assert_tokens("\"\\ud83d\\u0041\"", "!t:1:2: unpaired high surrogate \\ud83d");
    assert_tokens("\"\\ude00\"", "!t:1:2: unpaired low surrogate \\ude00");
    assert_tokens("\"\xc0\x80\"", "!t:1:2: invalid UTF-8 (byte 0xc0)");         /* overlong */
    assert_tokens("\"\xed\xa0\x80\"", "!t:1:2: invalid UTF-8 (byte 0xed)");     /* encoded surrogate */
    assert_tokens("\"\xf4\x90\x80\x80\"", "!t:1:2: invalid UTF-8 (byte 0xf4)"); /* above U+10FFFF */
    assert_tokens("\"\xe2\x82", "!t:1:2: invalid UTF-8 (byte 0xe2)");
    assert_tokens("\"\\u12g4\"", "!t:1:2: \\u needs four hexadecimal digits");
    sn_json r;
    sn_json_start(&r, "t", "\"a\\u0000b\"", 10);
    assert_ok(sn_json_next(&r));
    assert_int_equal(r.size, 3);
    assert_memory_equal(r.text, "a\0b", 3);
    char *copy = NULL;
    assert_int_equal(sn_json_string(&r, &copy), SN_ERR_FORMAT);
    sn_json_end(&r);
}

static void refuses_what_is_not_json(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",    "{",   "[",      "[1",        "[1,",  "[1,]", "{\"a\"}",   "{\"a\":}",       "{\"a\":1,}", "{1:2}",   "[1 2]", "01", "1.",
        ".5",  "+1",  "1e",     "-",         "tru",  "nul",  "NaN",       "Infinity",       "\"a",        "\"\\x\"", "'a'",   "[}", "{]",
        "1 2", "[]]", "\"\t\"", "{\"a\" 1}", "[,1]", "{,}",  "truefalse", "\xef\xbb\xbf[]", "[1]x",       "\"\\"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!strchr(tokens(bad[i], strlen(bad[i])), '!')) fail_msg("accepted: %s", bad[i]);
    assert_tokens("{\n  \"a\": 1\n  \"b\": 2\n}", "{k(a)n(1)!t:3:3: wanted ',' or '}', found '\"'");
    assert_tokens("[1,\n", "[n(1)!t:2:1: wanted a value, found the end of the text");
}

static void limits_depth(void **state) {
    (void)state;
    char text[2 * SN_JSON_MAX_DEPTH + 3];
    memset(text, '[', SN_JSON_MAX_DEPTH);
    memset(text + SN_JSON_MAX_DEPTH, ']', SN_JSON_MAX_DEPTH);
    assert_null(strchr(tokens(text, 2 * SN_JSON_MAX_DEPTH), '!'));
    memset(text, '[', SN_JSON_MAX_DEPTH + 1);
    assert_non_null(strstr(tokens(text, SN_JSON_MAX_DEPTH + 1), "more than 256 levels"));
}

static void converts_numbers(void **state) {
    (void)state;
    const char *text =
        "[9223372036854775807,-9223372036854775808,9223372036854775808,18446744073709551615,18446744073709551616,-1,1.5,1e-400]";
    sn_json r;
    int64_t i;
    uint64_t u;
    double f;
    bool b;
    sn_json_start(&r, "n.json", text, strlen(text));
    assert_ok(sn_json_want(&r, SN_JSON_ARRAY));
    assert_ok(sn_json_read_i64(&r, &i));
    assert_true(i == INT64_MAX);
    assert_ok(sn_json_read_i64(&r, &i));
    assert_true(i == INT64_MIN);
    assert_int_equal(sn_json_read_i64(&r, &i), SN_ERR_FORMAT);
    assert_string_equal(sn_error_text(), "n.json:1:43: 9223372036854775808 does not fit in 64 bits");
    assert_ok(sn_json_read_u64(&r, &u));
    assert_true(u == UINT64_MAX);
    assert_int_equal(sn_json_read_u64(&r, &u), SN_ERR_FORMAT);
    assert_int_equal(sn_json_read_u64(&r, &u), SN_ERR_FORMAT);
    assert_int_equal(sn_json_read_i64(&r, &i), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "wanted an integer, found 1.5"));
    assert_ok(sn_json_f64(&r, &f));
    assert_true(f == 1.5);
    assert_int_equal(sn_json_bool(&r, &b), SN_ERR_FORMAT);
    assert_ok(sn_json_read_f64(&r, &f));
    assert_true(f == 0);
    sn_json_end(&r);
}

static void skips_values(void **state) {
    (void)state;
    const char *text = "{\"skip\": {\"a\": [1, {\"b\": 2}]}, \"scalar\": 3, \"want\": \"x\"}";
    sn_json r;
    sn_json_start(&r, "t", text, strlen(text));
    assert_ok(sn_json_want(&r, SN_JSON_OBJECT));
    assert_ok(sn_json_next(&r));
    assert_true(sn_json_is(&r, "skip"));
    assert_ok(sn_json_next(&r));
    size_t from = r.start;
    assert_ok(sn_json_skip(&r));
    assert_memory_equal(text + from, "{\"a\": [1, {\"b\": 2}]}", r.end - from);
    assert_ok(sn_json_next(&r));
    assert_ok(sn_json_skip(&r));
    assert_ok(sn_json_next(&r));
    assert_true(sn_json_is(&r, "want"));
    assert_false(sn_json_is(&r, "wan"));
    char *copy;
    assert_ok(sn_json_read_string(&r, &copy));
    assert_string_equal(copy, "x");
    sn_free(copy);
    assert_ok(sn_json_want(&r, SN_JSON_OBJECT_END));
    assert_ok(sn_json_want(&r, SN_JSON_EOF));
    sn_json_end(&r);
}

static double seconds_for(size_t n) { /* a text of n bytes with one long string, many short ones and escapes */
    char *text = sn_alloc(n + 16);
    struct timespec a, b;
    size_t at = 0;
    text[at++] = '[';
    text[at++] = '"';
    while (at < n / 2) text[at++] = 'a';
    text[at++] = '"';
    while (at < n) {
        memcpy(text + at, ",\"\\u00e9\"", 9);
        at += 9;
    }
    text[at++] = ']';
    sn_json r;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    sn_json_start(&r, "t", text, at);
    do assert_ok(sn_json_next(&r));
    while (r.type != SN_JSON_EOF);
    sn_json_end(&r);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    sn_free(text);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

static void linear_time(void **state) {
    (void)state;
    double small = 1, large = 1;
    for (int i = 0; i < 5; i++) {
        double s = seconds_for(1 << 20), l = seconds_for(8 << 20);
        if (s < small) small = s;
        if (l < large) large = l;
    }
    if (large > 32 * small) /* quadratic: 64 times; the machine may be busy */
        fail_msg("1 MiB in %.4f s, 8 MiB in %.4f s", small, large);
}

static void survives_failed_allocations(void **state) {
    (void)state;
    const char *text = "{\"a long key of this object\": [\"and a long string \\u00e9 of this array, longer than the first capacity\"]}";
    sn_alloc_fail_at(-1);
    tokens(text, strlen(text));
    for (long n = 0; n < 2; n++) {
        sn_json r;
        sn_status s = SN_OK;
        sn_json_start(&r, "t", text, strlen(text));
        sn_alloc_fail_at(n);
        while (s == SN_OK && (s = sn_json_next(&r)) == SN_OK && r.type != SN_JSON_EOF) continue;
        sn_alloc_fail_at(-1);
        assert_int_equal(s, SN_ERR_NO_MEMORY);
        sn_json_end(&r);
    }
}

static void names_are_numbered(void **state) {
    (void)state;
    sn_names set = {0};
    size_t index;
    bool added;
    char name[32];
    assert_false(sn_names_find(&set, "a", 1, &index));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 5000; i++) {
            int n = snprintf(name, sizeof name, "model.layers.%d.weight", i);
            assert_ok(sn_names_add(&set, name, (size_t)n, &index, &added));
            assert_int_equal(index, i);
            assert_int_equal(added, round == 0);
        }
    assert_int_equal(set.count, 5000);
    assert_string_equal(set.items[4999].text, "model.layers.4999.weight");
    assert_ok(sn_names_add(&set, "a\0b", 3, &index, &added)); /* NUL bytes count */
    assert_false(sn_names_find(&set, "a", 1, &index));
    assert_true(sn_names_find(&set, "a\0b", 3, &index));
    sn_names_free(&set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tokens),
        cmocka_unit_test(decodes_unicode),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(limits_depth),
        cmocka_unit_test(converts_numbers),
        cmocka_unit_test(skips_values),
        cmocka_unit_test(linear_time),
        cmocka_unit_test(survives_failed_allocations),
        cmocka_unit_test(names_are_numbered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
