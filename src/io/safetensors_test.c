#include "support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/safetensors.h"

#define SHAPE(...) ((sn_shape[]){sn_shape_of(__VA_ARGS__)})
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/model_files/"

static char folder[512], file_path[600];

static void write_file(const char *path, const void *data, size_t n) { assert_ok(sn_file_replace(path, data, n)); }

/* header, with its length `n` in front (0: its true length), then `data` bytes. */
static void write_st(const char *path, const char *header, uint64_t n, size_t data) {
    sn_str s = {0};
    if (!n) n = strlen(header);
    sn_str_append(&s, (const char *)&n, 8);
    sn_str_add(&s, header);
    for (size_t i = 0; i < data; i++) sn_str_char(&s, (char)i);
    write_file(path, s.data, s.size);
    sn_str_free(&s);
}

static void refused(const char *header, uint64_t n, size_t data, sn_status code, const char *wanted) {
    sn_st st;
    struct rusage before, after;
    struct timespec a, b;
    write_st(file_path, header, n, data);
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    sn_status found = sn_st_open(file_path, &st);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    getrusage(RUSAGE_SELF, &after);
    if (found != code || !strstr(sn_error_text(), wanted))
        fail_msg("%s\nwanted %s with \"%s\", found %s: %s", header, sn_status_name(code), wanted, sn_status_name(found),
                 found ? sn_error_text() : "");
    assert_non_null(strstr(sn_error_text(), file_path));
    assert_true((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec) < 1);
    assert_true(after.ru_maxrss - before.ru_maxrss < 8 * 1024);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void malformed_refused(void **state) { /* safetensors#401 and others */
    (void)state;
    refused("{}", UINT64_MAX, 0, SN_ERR_FORMAT, "the header has 18446744073709551615 bytes"); /* + 8 wraps */
    refused("{}", UINT64_MAX - 7, 0, SN_ERR_FORMAT, "the header has 18446744073709551608 bytes");
    refused("{}", 3, 0, SN_ERR_FORMAT, "the header has 3 bytes, but the file has 10");
    refused("{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 0, 8, SN_ERR_FORMAT, "duplicate tensor \"a\"");
    refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, SN_ERR_FORMAT,
            "tensor a: duplicate key \"dtype\"");
    refused("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, 0, SN_ERR_FORMAT, "duplicate key \"k\" in __metadata__");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, 0, SN_ERR_FORMAT, "duplicate __metadata__");
    refused("{\"__metadata__\":{\"k\":1}}", 0, 0, SN_ERR_FORMAT, "wanted string, found number");
    refused("{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[1]", "[4,8]") "}", 0, 8, SN_ERR_FORMAT, "tensor b at 4 overlaps a");
    refused("{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 0, 12, SN_ERR_FORMAT,
            "hole of 4 bytes before tensor b");
    refused("{\"a\":" T("F32", "[1]", "[4,8]") "}", 0, 8, SN_ERR_FORMAT, "hole of 4 bytes before tensor a");
    refused("{\"a\":" T("F32", "[1]", "[0,4]") "}", 0, 8, SN_ERR_FORMAT, "4 bytes after the last tensor's end");
    refused("{\"a\":" T("F32", "[1]", "[0,4]") "}", 0, 3, SN_ERR_FORMAT, "tensor a: ends at 4, but the file holds 3 bytes");
    refused("{\"a\":" T("F32", "[1]", "[-4,0]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: bad offset \"-4\"");
    refused("{\"a\":" T("F32", "[1]", "[4,0]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: begins at 4 and ends before, at 0");
    refused("{\"a\":" T("F32", "[1]", "[0,4.0]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: bad offset \"4.0\"");
    refused("{\"a\":" T("F32", "[1]", "[0,4,8]") "}", 0, 8, SN_ERR_FORMAT, "wanted end of array");
    refused("{\"a\":" T("F32", "[1]", "[0]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: bad offset");
    refused("{\"a\":" T("F31", "[1]", "[0,4]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: unknown dtype \"F31\"");
    refused("{\"a\":" T("F8_E4M3", "[1]", "[0,1]") "}", 0, 1, SN_ERR_UNSUPPORTED, "tensor a has type F8_E4M3");
    refused("{\"a\":" T("F32", "[2]", "[0,4]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: f32 [2] takes 8 bytes, its offsets give 4");
    refused("{\"a\":" T("F32", "[4611686018427387904]", "[0,0]") "}", 0, 0, SN_ERR_FORMAT,
            "tensor a: the size of [4611686018427387904] overflows");
    refused("{\"a\":" T("F32", "[4194304,4398046511105]", "[0,4194304]") "}", 0, 4, SN_ERR_FORMAT, "overflows");
    refused("{\"a\":" T("F32", "[-1]", "[0,4]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: bad extent -1");
    refused("{\"a\":" T("F32", "[9223372036854775808]", "[0,4]") "}", 0, 4, SN_ERR_FORMAT, "tensor a: bad extent 9223372036854775808");
    refused("{\"a\":" T("F32", "[1,1,1,1,1,1]", "[0,4]") "}", 0, 4, SN_ERR_UNSUPPORTED, "tensor a has more than 5 dimensions");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, 4, SN_ERR_FORMAT, "tensor a: no data_offsets");
    refused("{\"a\":1}", 0, 4, SN_ERR_FORMAT, "wanted object, found number");
    refused("[]", 0, 0, SN_ERR_FORMAT, "wanted object, found array");
    refused("{} x", 0, 0, SN_ERR_FORMAT, "wanted the end of the text");
    sn_st st;
    write_file(file_path, "1234567", 7);
    assert_int_equal(sn_st_open(file_path, &st), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "7 bytes are too few"));
}

static void reads_python_file(void **state) {
    (void)state;
    sn_st st;
    assert_ok(sn_st_open(GOLDEN "types.safetensors", &st));
    assert_int_equal(st.tensor_count, 9);
    assert_string_equal(sn_st_metadata_value(&st, "format"), "pt");
    assert_string_equal(sn_st_metadata_value(&st, "note"), "line\nbreak");
    assert_null(sn_st_metadata_value(&st, "none"));
    const sn_st_tensor *t = sn_st_find(&st, "f32");
    float f[6];
    assert_true(sn_shape_equal(&t->shape, SHAPE(2, 3)));
    assert_ok(sn_st_read(&st, t, 0, f, 24));
    assert_true(f[5] == 5);
    t = sn_st_find(&st, "i64");
    int64_t i;
    assert_ok(sn_st_read(&st, t, 8, &i, 8));
    assert_true(i == INT64_C(1) << 40);
    assert_int_equal(sn_st_read(&st, t, 9, &i, 8), SN_ERR_USAGE);
    t = sn_st_find(&st, "scalar");
    assert_true(sn_shape_equal(&t->shape, SHAPE(1)));
    assert_ok(sn_st_read(&st, t, 0, f, 4));
    assert_true(f[0] == 2.5f);
    t = sn_st_find(&st, "empty");
    assert_true(sn_shape_equal(&t->shape, SHAPE(0, 3)));
    assert_int_equal(t->bytes, 0);
    assert_int_equal(sn_st_find(&st, "bf16")->dtype, SN_BF16);
    assert_int_equal(sn_st_find(&st, "u8")->dtype, SN_U8);
    assert_non_null(sn_st_find(&st, "n\xc3\xa4me \"quoted\""));
    assert_null(sn_st_find(&st, "none"));
    sn_st_close(&st);
}

/* The Python package orders its data as the writer does (wide elements first), so equal tensors give equal bytes. */
static void round_trip(void **state) {
    (void)state;
    sn_st a, b;
    sn_st_writer w;
    char part[64], other[64];
    assert_ok(sn_st_open(GOLDEN "types.safetensors", &a));
    assert_ok(sn_st_write_open(file_path, &w));
    unlink(file_path);
    for (size_t i = 0; i < a.metadata_count; i++) assert_ok(sn_st_add_metadata(&w, a.metadata[i].key, a.metadata[i].value));
    for (size_t i = 0; i < a.tensor_count; i++) assert_ok(sn_st_add_tensor(&w, a.tensors[i].name, a.tensors[i].dtype, &a.tensors[i].shape));
    assert_int_equal(sn_st_add_tensor(&w, "f32", SN_F32, SHAPE(1)), SN_ERR_USAGE);
    assert_int_equal(sn_st_add_tensor(&w, "q", SN_Q4_1, SHAPE(32)), SN_ERR_UNSUPPORTED);
    assert_int_equal(sn_st_add_tensor(&w, "__metadata__", SN_F32, SHAPE(1)), SN_ERR_USAGE);
    assert_ok(sn_st_write_begin(&w));
    for (size_t i = a.tensor_count; i-- > 1;) {
        assert_ok(sn_st_read(&a, &a.tensors[i], 0, part, (size_t)a.tensors[i].bytes));
        assert_ok(sn_st_write(&w, i, 0, part, (size_t)a.tensors[i].bytes));
    }
    assert_int_equal(sn_st_write_finish(&w), SN_ERR_USAGE);
    assert_non_null(strstr(sn_error_text(), "0 of 16 bytes were written"));
    assert_false(sn_path_exists(file_path));
    assert_ok(sn_st_read(&a, &a.tensors[0], 0, part, 16));
    assert_int_equal(sn_st_write(&w, 0, 1, part, 16), SN_ERR_USAGE);
    assert_ok(sn_st_write(&w, 0, 0, part, 8));
    assert_ok(sn_st_write(&w, 0, 8, part + 8, 8));
    assert_ok(sn_st_write_finish(&w));
    sn_st_write_close(&w);
    assert_ok(sn_st_open(file_path, &b));
    assert_int_equal(b.tensor_count, a.tensor_count);
    assert_string_equal(sn_st_metadata_value(&b, "note"), "line\nbreak");
    for (size_t i = 0; i < a.tensor_count; i++) {
        const sn_st_tensor *x = &a.tensors[i], *y = sn_st_find(&b, x->name);
        assert_non_null(y);
        assert_int_equal(x->dtype, y->dtype);
        assert_true(sn_shape_equal(&x->shape, &y->shape));
        assert_int_equal(y->offset % (uint64_t)sn_dtypes[y->dtype].bytes, 0);
        assert_ok(sn_st_read(&a, x, 0, part, (size_t)x->bytes));
        assert_ok(sn_st_read(&b, y, 0, other, (size_t)x->bytes));
        assert_memory_equal(part, other, (size_t)x->bytes);
    }
    sn_st_close(&a);
    sn_st_close(&b);
}

static void write_numbers(uint64_t max_bytes, int tensors) { /* tensor i: f32 [i + 1] of i */
    sn_st_writer w;
    char name[16];
    assert_ok(sn_st_write_open_folder(folder, "model", max_bytes, &w));
    assert_ok(sn_st_add_metadata(&w, "format", "pt"));
    for (int i = 0; i < tensors; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_ok(sn_st_add_tensor(&w, name, SN_F32, SHAPE(i + 1)));
    }
    assert_ok(sn_st_write_begin(&w));
    for (int i = 0; i < tensors; i++)
        for (int j = 0; j <= i; j++) assert_ok(sn_st_write(&w, (size_t)i, 4 * (uint64_t)j, &(float){(float)i}, 4));
    assert_ok(sn_st_write_finish(&w));
    sn_st_write_close(&w);
}

static void shards(void **state) {
    (void)state;
    sn_st st;
    char name[16], index[600], single[600];
    snprintf(index, sizeof index, "%s/model.safetensors.index.json", folder);
    snprintf(single, sizeof single, "%s/model.safetensors", folder);
    static const struct {
        uint64_t max_bytes;
        size_t files;
    } cases[] = {{UINT64_MAX, 1}, {16, 4}, {1, 5}, {60, 1}, {59, 2}}; /* sizes 4, 8, 12, 16, 20 */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        write_numbers(cases[c].max_bytes, 5);
        assert_int_equal(sn_path_exists(index), cases[c].files > 1);
        assert_int_equal(sn_path_exists(single), cases[c].files == 1);
        assert_ok(sn_st_open_folder(folder, "model", &st));
        assert_int_equal(st.file_count, cases[c].files);
        assert_int_equal(st.tensor_count, 5);
        for (int i = 0; i < 5; i++) {
            float last;
            snprintf(name, sizeof name, "t%d", i);
            assert_ok(sn_st_read(&st, sn_st_find(&st, name), 4 * (uint64_t)i, &last, 4));
            assert_true(last == (float)i);
        }
        sn_st_close(&st);
    }
    assert_int_equal(sn_st_open_folder(folder, "adapter_model", &st), SN_ERR_FILE);
}

static void bad_index(const char *text, const char *wanted) {
    sn_st st;
    char path[600];
    snprintf(path, sizeof path, "%s/m.safetensors.index.json", folder);
    write_file(path, text, strlen(text));
    sn_status s = sn_st_open_folder(folder, "m", &st);
    if (s != SN_ERR_FORMAT || !strstr(sn_error_text(), wanted)) fail_msg("%s: %s: %s", text, sn_status_name(s), s ? sn_error_text() : "");
}

static void malformed_index_refused(void **state) {
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/one.st", folder);
    write_st(path, "{\"a\":" T("F32", "[1]", "[0,4]") "}", 0, 4);
    snprintf(path, sizeof path, "%s/two.st", folder);
    write_st(path, "{\"b\":" T("F32", "[1]", "[0,4]") "}", 0, 4);
    bad_index("{}", "no weight_map");
    bad_index("{\"weight_map\":{\"a\":\"../one.st\"}}", "is no plain file name");
    bad_index("{\"weight_map\":{\"a\":\"/one.st\"}}", "is no plain file name");
    bad_index("{\"weight_map\":{\"a\":\"one.st\",\"a\":\"one.st\"}}", "duplicate tensor \"a\"");
    bad_index("{\"weight_map\":{\"a\":\"one.st\",\"c\":\"two.st\"}}", "tensor c is not in two.st");
    bad_index("{\"weight_map\":{\"b\":\"one.st\",\"a\":\"two.st\"}}", "tensor b is not in one.st");
    bad_index("{\"weight_map\":{\"a\":\"one.st\"},\"weight_map\":{}}", "duplicate weight_map");
    write_st(path, "{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[4,8]") "}", 0, 8);
    bad_index("{\"weight_map\":{\"a\":\"one.st\",\"b\":\"two.st\"}}", "duplicate tensor \"a\"");
    bad_index("{\"weight_map\":{\"a\":\"two.st\"}}", "is not in the index");
}

static void survives_failed_allocations(void **state) {
    (void)state;
    sn_st st;
    sn_alloc_fail_at(-1);
    assert_ok(sn_st_open_folder(GOLDEN "llama", "model", &st));
    sn_st_close(&st);
    long n = sn_alloc_fail_at(-1);
    assert_true(n > 10);
    for (long i = 0; i < n; i++) {
        sn_alloc_fail_at(i);
        sn_status s = sn_st_open_folder(GOLDEN "llama", "model", &st);
        sn_alloc_fail_at(-1);
        assert_int_equal(s, SN_ERR_NO_MEMORY);
    }
}

/* As by two processes: one begins and finishes, the other joins and leaves. */
static void two_writers(void **state) {
    (void)state;
    sn_st_writer a, b, c;
    const float numbers[6] = {1, 2, 3, 4, 5, 6};
    float read[6];
    sn_st st;
    sn_st_writer *const writers[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) {
        assert_ok(sn_st_write_open(file_path, writers[i]));
        assert_ok(sn_st_add_tensor(writers[i], "x", SN_F32, SHAPE(2, 3)));
    }
    unlink(file_path);
    assert_int_equal(sn_st_write_join(&b), SN_ERR_FILE); /* nobody has begun */
    sn_st_write_close(&b);
    assert_ok(sn_st_write_open(file_path, &b));
    assert_ok(sn_st_add_tensor(&b, "x", SN_F32, SHAPE(2, 3)));
    assert_ok(sn_st_add_tensor(&c, "y", SN_F32, SHAPE(2, 3)));
    assert_ok(sn_st_write_begin(&a));
    assert_int_equal(sn_st_write_join(&c), SN_ERR_FILE);
    assert_non_null(strstr(sn_error_text(), "another process began it otherwise"));
    sn_st_write_close(&c); /* leaves the file to the one that began it */
    assert_ok(sn_st_write_join(&b));
    assert_ok(sn_st_write(&a, 0, 0, numbers, 16));
    assert_ok(sn_st_write(&b, 0, 16, numbers + 4, 8));
    assert_ok(sn_st_write_leave(&b));
    sn_st_write_close(&b);
    assert_int_equal(sn_st_write_finish(&a), SN_ERR_USAGE); /* 16 of 24 bytes */
    sn_st_write_count(&a, 0, 8);
    assert_ok(sn_st_write_finish(&a));
    sn_st_write_close(&a);
    assert_ok(sn_st_open(file_path, &st));
    assert_ok(sn_st_read(&st, sn_st_find(&st, "x"), 0, read, 24));
    assert_memory_equal(read, numbers, 24);
    sn_st_close(&st);
}

int main(void) {
    snprintf(folder, sizeof folder, "%s", test_dir("safetensors"));
    snprintf(file_path, sizeof file_path, "%s/x.safetensors", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_refused),
        cmocka_unit_test(reads_python_file),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(shards),
        cmocka_unit_test(two_writers),
        cmocka_unit_test(malformed_index_refused),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
