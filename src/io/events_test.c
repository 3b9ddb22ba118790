#include "support/support.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "io/events.h"

/* A reader of its own: records, then any protocol buffer fields. */
typedef struct event {
    double wall_time, value;
    int64_t step;
    char version[32], tag[200];
    int session;
} event;

static uint64_t fixed(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static uint32_t unmask(uint32_t m) {
    m -= 0xa282ead8u;
    return m >> 17 | m << 15;
}

static uint64_t varint(const uint8_t **p) {
    uint64_t v = 0;
    int shift = 0;
    do v |= (uint64_t)(**p & 0x7f) << shift, shift += 7;
    while (*(*p)++ & 0x80);
    return v;
}

static void fields(const uint8_t *p, const uint8_t *end, int depth, event *e) {
    while (p < end) {
        uint64_t key = varint(&p), n;
        int field = (int)(key >> 3);
        if (key == (1 << 3 | 1)) {
            uint64_t bits = fixed(p, 8);
            memcpy(&e->wall_time, &bits, 8);
            p += 8;
        } else if ((key & 7) == 0) {
            uint64_t v = varint(&p);
            if (depth) e->session = (int)v;
            else e->step = (int64_t)v;
        } else if ((key & 7) == 5) {
            uint32_t bits = (uint32_t)fixed(p, 4);
            float f;
            memcpy(&f, &bits, 4);
            assert_int_equal(depth, 2);
            e->value = f;
            p += 4;
        } else {
            assert_int_equal(key & 7, 2);
            n = varint(&p);
            assert_true(n <= (uint64_t)(end - p));
            if (depth == 0 && field == 3) memcpy(e->version, p, n);
            else if (depth == 2 && field == 1) memcpy(e->tag, p, n);
            else fields(p, p + n, depth + 1, e);
            p += n;
        }
    }
    assert_ptr_equal(p, end);
}

static size_t read_events(const char *path, event *events, size_t room) {
    char *data;
    size_t size, count = 0;
    assert_ok(sn_file_read_all(path, 1 << 20, &data, &size));
    for (size_t at = 0; at < size; count++) {
        const uint8_t *p = (uint8_t *)data + at;
        assert_true(count < room && size - at >= 16);
        size_t n = (size_t)fixed(p, 8);
        assert_int_equal(unmask((uint32_t)fixed(p + 8, 4)), sn_crc32c(0, p, 8));
        assert_true(n <= size - at - 16);
        assert_int_equal(unmask((uint32_t)fixed(p + 12 + n, 4)), sn_crc32c(0, p + 12, n));
        events[count] = (event){.session = -1};
        fields(p + 12, p + 12 + n, 0, &events[count]);
        at += n + 16;
    }
    sn_free(data);
    return count;
}

static void written_and_read_back(void **state) {
    (void)state;
    char *folder = sn_path_join(test_dir("events"), "run/logs");
    sn_events *e;
    event got[10];
    char long_tag[181];
    memset(long_tag, 't', 180);
    long_tag[180] = 0;
    assert_ok(sn_events_open(folder, 0, &e));
    assert_non_null(strstr(sn_events_path(e), "/run/logs/events.out.tfevents."));
    assert_ok(sn_events_scalar(e, "train/loss", 1, 2.5));
    assert_ok(sn_events_scalar(e, "train/loss", INT64_C(3000000000), -1e-8));
    assert_ok(sn_events_scalar(e, long_tag, 300, NAN));           /* lengths above 127 */
    assert_int_equal(read_events(sn_events_path(e), got, 10), 4); /* before the file is closed */
    assert_string_equal(got[0].version, "brain.Event:2");
    assert_string_equal(got[1].tag, "train/loss");
    assert_true(got[1].step == 1 && got[1].value == 2.5);
    assert_true(got[2].step == INT64_C(3000000000) && got[2].value == (double)-1e-8f);
    assert_string_equal(got[3].tag, long_tag);
    assert_true(isnan(got[3].value));
    for (int i = 0; i < 4; i++) assert_true(fabs(got[i].wall_time - (double)time(NULL)) < 60);
    sn_events_close(e);
    sn_free(folder);
}

static void resumed_in_a_new_file(void **state) {
    (void)state;
    const char *folder = test_dir("events");
    sn_events *first, *second;
    event got[10];
    assert_ok(sn_events_open(folder, 0, &first));
    assert_ok(sn_events_open(folder, 7, &second)); /* the same second and process: still two files */
    assert_string_not_equal(sn_events_path(first), sn_events_path(second));
    assert_ok(sn_events_scalar(second, "a", 7, 1));
    assert_int_equal(read_events(sn_events_path(first), got, 10), 1);
    assert_int_equal(read_events(sn_events_path(second), got, 10), 3);
    assert_true(got[1].step == 7 && got[1].session == 1);
    sn_events_close(first);
    sn_events_close(second);
}

static void unwritable(void **state) {
    (void)state;
    sn_events *e;
    assert_int_equal(sn_events_open("/proc/no-such-folder", 0, &e), SN_ERR_FILE);
    assert_null(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read_back),
        cmocka_unit_test(resumed_in_a_new_file),
        cmocka_unit_test(unwritable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
