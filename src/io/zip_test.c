#include "support/support.h"

#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/zip.h"

/* Builds archives by hand, so that every field can be made wrong. */
typedef struct maker {
    sn_str data, directory;
    int count;
} maker;

static void put(sn_str *s, uint32_t v, int bytes) {
    for (int i = 0; i < bytes; i++) sn_str_char(s, (char)(v >> 8 * i));
}

static void add(maker *z, const char *name, const char *text, size_t n, int method) {
    size_t offset = z->data.size, packed = n;
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)text, (uInt)n);
    char *body = sn_alloc(n + 1000);
    memcpy(body, text, n);
    if (method == 8) {
        z_stream s = {.next_in = (Bytef *)text, .avail_in = (uInt)n, .next_out = (Bytef *)body, .avail_out = (uInt)(n + 1000)};
        assert_int_equal(deflateInit2(&s, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
        packed = s.total_out;
        deflateEnd(&s);
    }
    put(&z->data, 0x04034b50, 4);
    for (int i = 0; i < 22; i++) sn_str_char(&z->data, 0);
    put(&z->data, (uint32_t)strlen(name), 2);
    put(&z->data, 3, 2); /* an extra field of 3 bytes */
    sn_str_add(&z->data, name);
    sn_str_add(&z->data, "xyz");
    sn_str_append(&z->data, body, packed);
    put(&z->directory, 0x02014b50, 4);
    put(&z->directory, 20, 4);
    put(&z->directory, 0, 2); /* flags */
    put(&z->directory, (uint32_t)method, 2);
    put(&z->directory, 0, 4);
    put(&z->directory, crc, 4);
    put(&z->directory, (uint32_t)packed, 4);
    put(&z->directory, (uint32_t)n, 4);
    put(&z->directory, (uint32_t)strlen(name), 2);
    for (int i = 0; i < 12; i++) sn_str_char(&z->directory, 0);
    put(&z->directory, (uint32_t)offset, 4);
    sn_str_add(&z->directory, name);
    z->count++;
    sn_free(body);
}

static sn_str finish(maker *z, const char *comment) {
    sn_str out = {0};
    sn_str_append(&out, z->data.data, z->data.size);
    sn_str_append(&out, z->directory.data, z->directory.size);
    put(&out, 0x06054b50, 4);
    put(&out, 0, 4);
    put(&out, (uint32_t)z->count, 2);
    put(&out, (uint32_t)z->count, 2);
    put(&out, (uint32_t)z->directory.size, 4);
    put(&out, (uint32_t)z->data.size, 4);
    put(&out, (uint32_t)strlen(comment), 2);
    sn_str_add(&out, comment);
    sn_str_free(&z->data);
    sn_str_free(&z->directory);
    return out;
}

static sn_status collect(void *context, const void *data, size_t n) {
    sn_str_append(context, data, n);
    return SN_OK;
}

static char *write_file(const char *name, const sn_str *s) {
    char *path = sn_path_join(test_dir("zip"), name);
    assert_ok(sn_file_replace(path, s->data, s->size));
    return path;
}

/* Opens and reads every member; the first status that is not SN_OK. */
static sn_status read_all(const char *path) {
    sn_zip *zip;
    SN_TRY(sn_zip_open(path, &zip));
    sn_status s = SN_OK;
    for (size_t i = 0; s == SN_OK && i < sn_zip_count(zip); i++) {
        sn_str text = {0};
        s = sn_zip_read(zip, sn_zip_member_at(zip, i), collect, &text);
        sn_str_free(&text);
    }
    sn_zip_close(zip);
    return s;
}

static sn_str sample(const char *comment, char **text, size_t *n) {
    *n = 600000; /* several chunks, in and out */
    *text = sn_alloc(*n);
    for (size_t i = 0; i < *n; i++) (*text)[i] = (char)(i * i >> 7);
    maker z = {0};
    add(&z, "a/stored.bin", *text, *n, 0);
    add(&z, "deflated.bin", *text, *n, 8);
    add(&z, "empty", "", 0, 0);
    add(&z, "empty.deflated", "", 0, 8);
    return finish(&z, comment);
}

static void members_read_back(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        char *text;
        size_t n;
        sn_str file = sample(round ? "a comment with PK\5\6 inside" : "", &text, &n);
        char *path = write_file("a.zip", &file);
        sn_zip *zip;
        assert_ok(sn_zip_open(path, &zip));
        assert_int_equal(sn_zip_count(zip), 4);
        assert_null(sn_zip_find(zip, "stored.bin"));
        for (size_t i = 0; i < 4; i++) {
            const sn_zip_member *m = sn_zip_member_at(zip, i);
            assert_ptr_equal(sn_zip_find(zip, m->name), m);
            sn_str got = {0};
            assert_ok(sn_zip_read(zip, m, collect, &got));
            assert_int_equal(got.size, i < 2 ? n : 0);
            if (i < 2) assert_memory_equal(got.data, text, n);
            sn_str_free(&got);
        }
        sn_zip_close(zip);
        sn_free(path);
        sn_free(text);
        sn_str_free(&file);
    }
}

static void damage_is_found(void **state) {
    (void)state;
    char *text;
    size_t n;
    sn_str file = sample("", &text, &n);
    size_t directory = (size_t)((uint8_t)file.data[file.size - 6] | (uint8_t)file.data[file.size - 5] << 8 |
                                (uint8_t)file.data[file.size - 4] << 16 | (uint8_t)file.data[file.size - 3] << 24);
    const struct {
        const char *what;
        size_t at;
        int value;
        sn_status want;
    } cases[] = {
        {"a stored byte", 1000, 0x55, SN_ERR_FORMAT},
        {"a deflated byte", n + 600, 0x55, SN_ERR_FORMAT},
        {"the stated size", directory + 24, 0x7f, SN_ERR_FORMAT},
        {"the CRC", directory + 16, 0x7f, SN_ERR_FORMAT},
        {"the packed size", directory + 22, 0x7f, SN_ERR_FORMAT},
        {"the packed size past the data", directory + 23, 0x7f, SN_ERR_FORMAT},
        {"the local header's place", directory + 42, 9, SN_ERR_FORMAT},
        {"the name's length", directory + 29, 0xff, SN_ERR_FORMAT},
        {"an entry's mark", directory, 0, SN_ERR_FORMAT},
        {"the encryption flag", directory + 8, 1, SN_ERR_UNSUPPORTED},
        {"the method", directory + 10, 12, SN_ERR_UNSUPPORTED},
        {"a NUL in the name", directory + 47, 0, SN_ERR_FORMAT},
        {"the end record's mark", file.size - 22, 0, SN_ERR_FORMAT},
        {"the directory's place", file.size - 3, 0x7f, SN_ERR_FORMAT},
        {"the disk number", file.size - 18, 1, SN_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keep = file.data[cases[i].at];
        assert_int_not_equal((uint8_t)keep, cases[i].value);
        file.data[cases[i].at] = (char)cases[i].value;
        char *path = write_file("b.zip", &file);
        sn_status s = read_all(path);
        if (s != cases[i].want) fail_msg("%s: got %s", cases[i].what, sn_status_name(s));
        assert_non_null(strstr(sn_error_text(), path));
        file.data[cases[i].at] = keep;
        sn_free(path);
    }
    for (size_t cut = 0; cut < file.size; cut += 50021) { /* a shortened file never opens */
        sn_str part = {file.data, cut, 0, false};
        char *path = write_file("c.zip", &part);
        assert_int_equal(read_all(path), SN_ERR_FORMAT);
        sn_free(path);
    }
    char *path = write_file("d.zip", &file);
    assert_ok(read_all(path));
    sn_free(path);
    sn_free(text);
    sn_str_free(&file);
}

static sn_status refuse(void *context, const void *data, size_t n) {
    (void)data;
    *(size_t *)context += n;
    return sn_fail(SN_ERR_INTERRUPTED, "stopped");
}

static void sink_ends_unpacking(void **state) {
    (void)state;
    char *text;
    size_t n, seen = 0;
    sn_str file = sample("", &text, &n);
    char *path = write_file("e.zip", &file);
    sn_zip *zip;
    assert_ok(sn_zip_open(path, &zip));
    assert_int_equal(sn_zip_read(zip, sn_zip_find(zip, "deflated.bin"), refuse, &seen), SN_ERR_INTERRUPTED);
    assert_true(seen > 0 && seen < n);
    sn_zip_close(zip);
    sn_free(path);
    sn_free(text);
    sn_str_free(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_read_back),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(sink_ends_unpacking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
