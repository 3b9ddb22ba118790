#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/gguf.h"

#define SHAPE(...) ((sn_shape[]){sn_shape_of(__VA_ARGS__)})
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/model_files/"

static char file_path[600];

static void put_u32(sn_str *s, uint32_t v) { sn_str_append(s, (const char *)&v, 4); }
static void put_u64(sn_str *s, uint64_t v) { sn_str_append(s, (const char *)&v, 8); }
static void put_text(sn_str *s, const char *text) {
    put_u64(s, strlen(text));
    sn_str_add(s, text);
}
static void put_header(sn_str *s, uint32_t version, uint64_t tensors, uint64_t keys) {
    sn_str_add(s, "GGUF");
    put_u32(s, version);
    put_u64(s, tensors);
    put_u64(s, keys);
}
static void put_kv_u32(sn_str *s, const char *key, uint32_t v) {
    put_text(s, key);
    put_u32(s, SN_GGUF_U32);
    put_u32(s, v);
}
static void put_tensor(sn_str *s, const char *name, uint32_t dims, const uint64_t *extents, uint32_t type, uint64_t offset) {
    put_text(s, name);
    put_u32(s, dims);
    for (uint32_t i = 0; i < dims; i++) put_u64(s, extents[i]);
    put_u32(s, type);
    put_u64(s, offset);
}
#define EXTENTS(...) \
    (uint32_t)(sizeof((uint64_t[]){__VA_ARGS__}) / 8), (uint64_t[]) { __VA_ARGS__ }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The bytes (then padding and `data` zero bytes) are refused quickly, in small memory, and the message contains `wanted`. Frees them. */
static void refused(sn_str *s, size_t data, sn_status code, const char *wanted) {
    sn_gguf g;
    struct rusage before, after;
    while (s->size % 32) sn_str_char(s, 0);
    for (size_t i = 0; i < data; i++) sn_str_char(s, 0);
    assert_ok(sn_file_replace(file_path, s->data, s->size));
    sn_str_free(s);
    getrusage(RUSAGE_SELF, &before);
    double start = now();
    sn_status found = sn_gguf_open(file_path, &g);
    double seconds = now() - start;
    getrusage(RUSAGE_SELF, &after);
    if (found != code || !strstr(sn_error_text(), wanted))
        fail_msg("wanted %s with \"%s\", found %s: %s", sn_status_name(code), wanted, sn_status_name(found), found ? sn_error_text() : "");
    assert_non_null(strstr(sn_error_text(), file_path));
    assert_true(seconds < 1);
    assert_true(after.ru_maxrss - before.ru_maxrss < 8 * 1024);
}

static void huge_counts_refused(void **state) { /* ggml#709 */
    (void)state;
    sn_str s = {0};
    put_header(&s, 3, 0, UINT64_MAX);
    refused(&s, 64, SN_ERR_FORMAT, "declares 18446744073709551615 keys");
    put_header(&s, 3, UINT64_MAX, 0);
    refused(&s, 64, SN_ERR_FORMAT, "declares 18446744073709551615 tensors");
    put_header(&s, 3, 0, 1);
    put_u64(&s, UINT64_MAX);
    refused(&s, 64, SN_ERR_FORMAT, "name of key 0 has 18446744073709551615 bytes");
    put_header(&s, 3, 0, 1);
    put_text(&s, "general.name");
    put_u32(&s, SN_GGUF_STRING);
    put_u64(&s, UINT64_MAX);
    refused(&s, 64, SN_ERR_FORMAT, "key general.name: string of 18446744073709551615 bytes");
    static const uint32_t items[] = {SN_GGUF_U8, SN_GGUF_F32, SN_GGUF_U64, SN_GGUF_STRING};
    for (size_t i = 0; i < 4; i++) {
        put_header(&s, 3, 0, 1);
        put_text(&s, "big.array");
        put_u32(&s, SN_GGUF_ARRAY);
        put_u32(&s, items[i]);
        put_u64(&s, UINT64_C(1) << 61);
        refused(&s, 64, SN_ERR_FORMAT, "key big.array: array of 2305843009213693952");
    }
    put_header(&s, 3, 0, 1);
    put_text(&s, "words");
    put_u32(&s, SN_GGUF_ARRAY);
    put_u32(&s, SN_GGUF_STRING);
    put_u64(&s, 2);
    put_text(&s, "fine");
    put_u64(&s, UINT64_MAX - 7);
    refused(&s, 64, SN_ERR_FORMAT, "key words: item 1 has 18446744073709551608 bytes");
}

static void bad_types_refused(void **state) {
    (void)state;
    sn_str s = {0};
    put_header(&s, 3, 0, 1);
    put_text(&s, "odd");
    put_u32(&s, 9999);
    refused(&s, 64, SN_ERR_FORMAT, "key odd: unknown value type 9999");
    put_header(&s, 3, 0, 1);
    put_text(&s, "odd");
    put_u32(&s, SN_GGUF_ARRAY);
    put_u32(&s, 13);
    put_u64(&s, 0);
    refused(&s, 64, SN_ERR_FORMAT, "key odd: unknown array item type 13");
    put_header(&s, 3, 0, 1);
    put_text(&s, "odd");
    put_u32(&s, SN_GGUF_ARRAY);
    put_u32(&s, SN_GGUF_ARRAY);
    put_u64(&s, 0);
    refused(&s, 64, SN_ERR_UNSUPPORTED, "key odd: array of arrays");
    put_header(&s, 3, 0, 1);
    put_text(&s, "odd");
    put_u32(&s, SN_GGUF_BOOL);
    sn_str_char(&s, 2);
    refused(&s, 64, SN_ERR_FORMAT, "key odd: wanted a bool (0 or 1), found 2");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "w", EXTENTS(32), 9999, 0);
    refused(&s, 128, SN_ERR_FORMAT, "tensor w has the unknown type 9999");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "w", EXTENTS(256), 16, 0);
    refused(&s, 128, SN_ERR_UNSUPPORTED, "tensor w has type IQ2_XXS");
}

static void bad_shapes_refused(void **state) {
    (void)state;
    sn_str s = {0};
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "five", EXTENTS(1, 1, 1, 1, 1), 0, 0);
    refused(&s, 128, SN_ERR_FORMAT, "tensor five: 5 dimensions");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "many", 0, NULL, 0, 0);
    s.data[24 + 8 + 4 + 3] = 0x7f; /* dims = 0x7f000000 */
    refused(&s, 128, SN_ERR_FORMAT, "tensor many: 2130706432 dimensions");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "wrap", EXTENTS(UINT64_C(1) << 62), 0, 0);
    refused(&s, 128, SN_ERR_FORMAT, "tensor wrap: the size of f32 [4611686018427387904] overflows");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "wrap", EXTENTS((UINT64_C(1) << 42) + 1, UINT64_C(1) << 22), 0, 0);
    refused(&s, 128, SN_ERR_FORMAT, "tensor wrap: the size of f32 [4194304,4398046511105] overflows");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "sign", EXTENTS(UINT64_MAX), 0, 0);
    refused(&s, 128, SN_ERR_FORMAT, "tensor sign: dimension 0 is 18446744073709551615");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "rows", EXTENTS(172, 2), 3, 0);
    refused(&s, 1024, SN_ERR_FORMAT, "tensor rows: rows of 172 are no whole number of q4_1 blocks of 32");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "large", EXTENTS(64, 64), 0, 0);
    refused(&s, 64 * 64 * 4 - 32, SN_ERR_FORMAT, "tensor large: 16384 bytes at 0, but the file holds 16352 bytes of data");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "far", EXTENTS(8), 0, UINT64_MAX - 31);
    refused(&s, 64, SN_ERR_FORMAT, "tensor far: 32 bytes at 18446744073709551584");
    put_header(&s, 3, 1, 0);
    put_tensor(&s, "odd", EXTENTS(8), 0, 8);
    refused(&s, 64, SN_ERR_FORMAT, "tensor odd: offset 8 is no multiple of the alignment 32");
    put_header(&s, 3, 2, 0);
    put_tensor(&s, "one", EXTENTS(16), 0, 0);
    put_tensor(&s, "two", EXTENTS(16), 0, 32);
    refused(&s, 128, SN_ERR_FORMAT, "tensors one and two overlap");
}

static void alignment_and_duplicates_refused(void **state) { /* ggml#1516, llama.cpp#26318 */
    (void)state;
    sn_str s = {0};
    static const uint32_t bad[] = {0, 3, 1u << 30, 4, 48};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_header(&s, 3, 0, 1);
        put_kv_u32(&s, "general.alignment", bad[i]);
        refused(&s, 64, SN_ERR_FORMAT, "key general.alignment: wanted a power of two");
    }
    put_header(&s, 3, 0, 1);
    put_text(&s, "general.alignment");
    put_u32(&s, SN_GGUF_U64);
    put_u64(&s, 32);
    refused(&s, 64, SN_ERR_FORMAT, "key general.alignment: wanted u32, found u64");
    put_header(&s, 3, 0, 2);
    put_kv_u32(&s, "twice", 1);
    put_kv_u32(&s, "twice", 1);
    refused(&s, 64, SN_ERR_FORMAT, "duplicate key twice");
    put_header(&s, 3, 2, 0);
    put_tensor(&s, "twice", EXTENTS(8), 0, 0);
    put_tensor(&s, "twice", EXTENTS(8), 0, 32);
    refused(&s, 64, SN_ERR_FORMAT, "duplicate tensor twice");
}

static void bad_headers_refused(void **state) {
    (void)state;
    sn_str s = {0};
    sn_str_add(&s, "GGML");
    refused(&s, 64, SN_ERR_FORMAT, "is no GGUF file");
    put_header(&s, 1, 0, 0);
    refused(&s, 64, SN_ERR_UNSUPPORTED, "GGUF version 1");
    put_header(&s, 4, 0, 0);
    refused(&s, 64, SN_ERR_UNSUPPORTED, "GGUF version 4");
    put_header(&s, 0x03000000, 0, 0);
    refused(&s, 64, SN_ERR_UNSUPPORTED, "big-endian");
}

static void every_truncation_refused(void **state) {
    (void)state;
    char *data, *cut;
    size_t size;
    sn_gguf g;
    assert_ok(sn_file_read_all(GOLDEN "types.gguf", 1 << 20, &data, &size));
    assert_ok(sn_gguf_open(GOLDEN "types.gguf", &g));
    size_t end = 0; /* of the last tensor: padding after it may be missing */
    for (size_t i = 0; i < g.tensor_count; i++)
        if (g.tensors[i].offset + g.tensors[i].bytes > end) end = (size_t)(g.tensors[i].offset + g.tensors[i].bytes);
    sn_gguf_close(&g);
    for (size_t n = 0; n < end; n += n < 1200 ? 7 : 1) {
        cut = sn_alloc(n + 1);
        memcpy(cut, data, n);
        FILE *f = fopen(file_path, "wb");
        fwrite(cut, 1, n, f);
        fclose(f);
        sn_free(cut);
        if (sn_gguf_open(file_path, &g) != SN_ERR_FORMAT) fail_msg("%zu of %zu bytes: not refused", n, size);
    }
    sn_free(data);
}

static void reads_python_file(void **state) {
    (void)state;
    sn_gguf g;
    uint32_t u32;
    uint64_t u64;
    int64_t i64;
    double f64;
    bool b;
    const char *text;
    assert_ok(sn_gguf_open(GOLDEN "types.gguf", &g));
    assert_int_equal(g.version, 3);
    assert_int_equal(g.alignment, 64);
    assert_ok(sn_gguf_get_u32(&g, "t.u8", &u32));
    assert_int_equal(u32, 200);
    assert_ok(sn_gguf_get_i64(&g, "t.i8", &i64));
    assert_int_equal(i64, -100);
    assert_ok(sn_gguf_get_u32(&g, "t.u16", &u32));
    assert_int_equal(u32, 60000);
    assert_ok(sn_gguf_get_i64(&g, "t.i16", &i64));
    assert_int_equal(i64, -30000);
    assert_ok(sn_gguf_get_u32(&g, "t.u32", &u32));
    assert_true(u32 == 4000000000u);
    assert_ok(sn_gguf_get_i64(&g, "t.i32", &i64));
    assert_int_equal(i64, -2000000000);
    assert_ok(sn_gguf_get_u64(&g, "t.u64", &u64));
    assert_true(u64 == (UINT64_C(1) << 63) + 1);
    assert_ok(sn_gguf_get_i64(&g, "t.i64", &i64));
    assert_true(i64 == INT64_MIN);
    assert_ok(sn_gguf_get_f64(&g, "t.f32", &f64));
    assert_true(f64 == 1e-5);
    assert_ok(sn_gguf_get_f64(&g, "t.f64", &f64));
    assert_true(f64 == 0.1);
    assert_ok(sn_gguf_get_bool(&g, "t.bool", &b));
    assert_true(b);
    assert_ok(sn_gguf_get_string(&g, "t.string", &text));
    assert_string_equal(text, "h\xc3\xa9llo");

    assert_int_equal(sn_gguf_get_u32(&g, "t.i8", &u32), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "key t.i8: wanted u32, found -100"));
    assert_int_equal(sn_gguf_get_u32(&g, "t.u64", &u32), SN_ERR_FORMAT);
    assert_int_equal(sn_gguf_get_i64(&g, "t.u64", &i64), SN_ERR_FORMAT);
    assert_int_equal(sn_gguf_get_u32(&g, "t.string", &u32), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "key t.string: wanted u32, found string"));
    assert_int_equal(sn_gguf_get_string(&g, "t.strings", &text), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "key t.strings: wanted string, found array of string"));
    assert_int_equal(sn_gguf_get_f64(&g, "none", &f64), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "key none: wanted f32 or f64, found no such key"));
    sn_gguf_close(&g);
}

static void reads_python_arrays_and_tensors(void **state) {
    (void)state;
    sn_gguf g;
    sn_gguf_string *strings;
    int32_t *ints;
    float *floats;
    size_t n;
    assert_ok(sn_gguf_open(GOLDEN "types.gguf", &g));
    assert_ok(sn_gguf_get_strings(&g, "t.strings", &strings, &n));
    assert_int_equal(n, 4);
    assert_string_equal(strings[0].text, "a");
    assert_string_equal(strings[1].text, "");
    assert_string_equal(strings[2].text, "\xe2\x82\xac uro");
    assert_int_equal(strings[3].size, 4);
    sn_free(strings);
    assert_ok(sn_gguf_get_i32s(&g, "t.i32s", &ints, &n));
    assert_int_equal(n, 3);
    assert_int_equal(ints[1], -2);
    sn_free(ints);
    assert_ok(sn_gguf_get_f32s(&g, "t.f32s", &floats, &n));
    assert_int_equal(n, 2);
    assert_true(floats[1] == -1.25f);
    sn_free(floats);
    assert_int_equal(sn_gguf_get_i32s(&g, "t.f32s", &ints, &n), SN_ERR_FORMAT);
    assert_int_equal(sn_gguf_get_f32s(&g, "t.i32s", &floats, &n), SN_ERR_FORMAT);
    assert_int_equal(sn_gguf_get_strings(&g, "t.u8", &strings, &n), SN_ERR_FORMAT);

    const sn_gguf_tensor *t = sn_gguf_find_tensor(&g, "cube");
    assert_non_null(t);
    assert_true(sn_shape_equal(&t->shape, SHAPE(2, 3, 4)));
    assert_int_equal(t->dtype, SN_I32);
    int32_t cube[24];
    assert_ok(sn_gguf_read(&g, t, 0, cube, sizeof cube));
    for (int i = 0; i < 24; i++) assert_int_equal(cube[i], i);
    assert_ok(sn_gguf_read(&g, t, 92, cube, 4));
    assert_int_equal(cube[0], 23);
    assert_int_equal(sn_gguf_read(&g, t, 93, cube, 4), SN_ERR_USAGE);
    t = sn_gguf_find_tensor(&g, "quantised");
    assert_int_equal(t->dtype, SN_Q8_0);
    assert_true(sn_shape_equal(&t->shape, SHAPE(2, 32)));
    assert_int_equal(t->bytes, 68);
    assert_null(sn_gguf_find_tensor(&g, "none"));
    sn_gguf_close(&g);
}

/* Writing what was read gives the Python package's file back, byte for byte (it pads the end, too). */
static void rewrites_python_file(void **state) {
    (void)state;
    sn_gguf g;
    sn_gguf_writer w;
    char *a, *b, part[256];
    size_t na, nb;
    assert_ok(sn_gguf_open(GOLDEN "types.gguf", &g));
    assert_ok(sn_gguf_write_open(file_path, 0, &w));
    w.alignment = g.alignment; /* its key stands second in the file: it is copied like the others */
    for (size_t i = 0; i < g.kv_count; i++) assert_ok(sn_gguf_add_copy(&w, &g, &g.kv[i]));
    for (size_t i = 0; i < g.tensor_count; i++)
        assert_ok(sn_gguf_add_tensor(&w, g.tensors[i].name, g.tensors[i].dtype, &g.tensors[i].shape));
    assert_ok(sn_gguf_write_begin(&w));
    for (size_t i = g.tensor_count; i-- > 0;) {
        assert_ok(sn_gguf_read(&g, &g.tensors[i], 0, part, (size_t)g.tensors[i].bytes));
        assert_ok(sn_gguf_write(&w, i, 0, part, (size_t)g.tensors[i].bytes));
    }
    assert_ok(sn_gguf_write_finish(&w));
    sn_gguf_write_close(&w);
    sn_gguf_close(&g);
    assert_ok(sn_file_read_all(GOLDEN "types.gguf", 1 << 20, &a, &na));
    assert_ok(sn_file_read_all(file_path, 1 << 20, &b, &nb));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    sn_free(a);
    sn_free(b);
}

static void writer_checks(void **state) {
    (void)state;
    sn_gguf_writer w;
    sn_gguf g;
    uint32_t u;
    unlink(file_path);
    assert_int_equal(sn_gguf_write_open(file_path, 3, &w), SN_ERR_USAGE);
    assert_ok(sn_gguf_write_open(file_path, 64, &w));
    assert_ok(sn_gguf_add_u32(&w, "a", 7));
    assert_int_equal(sn_gguf_add_u32(&w, "a", 8), SN_ERR_USAGE);
    assert_int_equal(sn_gguf_add_tensor(&w, "u8", SN_U8, SHAPE(2)), SN_ERR_UNSUPPORTED);
    assert_int_equal(sn_gguf_add_tensor(&w, "q", SN_Q4_1, SHAPE(2, 33)), SN_ERR_SHAPE);
    assert_int_equal(sn_gguf_add_tensor(&w, "d", SN_F32, SHAPE(1, 1, 1, 1, 1)), SN_ERR_SHAPE);
    assert_ok(sn_gguf_add_tensor(&w, "w", SN_F32, SHAPE(3)));
    assert_int_equal(sn_gguf_add_tensor(&w, "w", SN_F32, SHAPE(3)), SN_ERR_USAGE);
    assert_ok(sn_gguf_add_tensor(&w, "none", SN_F32, SHAPE(0, 3)));
    assert_ok(sn_gguf_write_begin(&w));
    assert_int_equal(sn_gguf_add_u32(&w, "late", 1), SN_ERR_USAGE);
    assert_int_equal(sn_gguf_write(&w, 0, 8, "12345678", 8), SN_ERR_USAGE);
    assert_ok(sn_gguf_write(&w, 0, 0, "12345678", 8));
    assert_int_equal(sn_gguf_write_finish(&w), SN_ERR_USAGE);
    assert_non_null(strstr(sn_error_text(), "tensor w: 8 of 12 bytes were written"));
    assert_false(sn_path_exists(file_path));
    assert_ok(sn_gguf_write(&w, 0, 8, "abcd", 4));
    assert_ok(sn_gguf_write_finish(&w));
    sn_gguf_write_close(&w);
    assert_ok(sn_gguf_open(file_path, &g));
    assert_int_equal(g.alignment, 64);
    assert_ok(sn_gguf_get_u32(&g, "a", &u));
    assert_int_equal(u, 7);
    assert_int_equal(sn_gguf_find_tensor(&g, "none")->bytes, 0);
    sn_gguf_close(&g);
    assert_ok(sn_gguf_write_open(file_path, 0, &w)); /* an abandoned write leaves the older file */
    assert_ok(sn_gguf_write_begin(&w));
    sn_gguf_write_close(&w);
    assert_ok(sn_gguf_open(file_path, &g));
    assert_int_equal(g.tensor_count, 2);
    sn_gguf_close(&g);
}

static void survives_failed_allocations(void **state) {
    (void)state;
    sn_gguf g;
    sn_alloc_fail_at(-1);
    assert_ok(sn_gguf_open(GOLDEN "types.gguf", &g));
    sn_gguf_close(&g);
    long n = sn_alloc_fail_at(-1);
    assert_true(n > 10);
    for (long i = 0; i < n; i++) {
        sn_alloc_fail_at(i);
        sn_status s = sn_gguf_open(GOLDEN "types.gguf", &g);
        sn_alloc_fail_at(-1);
        assert_int_equal(s, SN_ERR_NO_MEMORY);
    }
}

static void reads_smollm2(void **state) {
    (void)state;
    const char *path = getenv("SNUG_TEST_GGUF");
    if (!path) skip();
    sn_gguf g;
    sn_gguf_string *tokens;
    size_t n;
    assert_ok(sn_gguf_open(path, &g));
    assert_int_equal(g.kv_count, 33);
    assert_int_equal(g.tensor_count, 272);
    assert_true(sn_shape_equal(&sn_gguf_find_tensor(&g, "token_embd.weight")->shape, SHAPE(49152, 576)));
    assert_int_equal(sn_gguf_find_tensor(&g, "token_embd.weight")->dtype, SN_Q8_0);
    assert_int_equal(sn_gguf_find_tensor(&g, "token_embd.weight")->offset, 1785664);
    assert_true(sn_shape_equal(&sn_gguf_find_tensor(&g, "blk.29.attn_k.weight")->shape, SHAPE(192, 576)));
    assert_ok(sn_gguf_get_strings(&g, "tokenizer.ggml.tokens", &tokens, &n));
    assert_int_equal(n, 49152);
    assert_string_equal(tokens[1].text, "<|im_start|>");
    sn_free(tokens);
    sn_gguf_close(&g);
}

int main(void) {
    snprintf(file_path, sizeof file_path, "%s/x.gguf", test_dir("gguf"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_counts_refused),         cmocka_unit_test(bad_types_refused),
        cmocka_unit_test(bad_shapes_refused),          cmocka_unit_test(alignment_and_duplicates_refused),
        cmocka_unit_test(bad_headers_refused),         cmocka_unit_test(every_truncation_refused),
        cmocka_unit_test(reads_python_file),           cmocka_unit_test(reads_python_arrays_and_tensors),
        cmocka_unit_test(rewrites_python_file),        cmocka_unit_test(writer_checks),
        cmocka_unit_test(survives_failed_allocations), cmocka_unit_test(reads_smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
