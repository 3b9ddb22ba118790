#include "io/events.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"

/* Fields of tensorflow.Event, Summary, Summary.Value and SessionLog: (number << 3) + wire type. */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3,
    EVENT_FILE_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION_LOG = 7 << 3 | 2,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5,
    SESSION_STATUS = 1 << 3,
    SESSION_START = 1,
};

struct sn_events {
    int fd;
    char *path;
    sn_str event, inner, value, record; /* kept, so that a steady state allocates nothing */
};

static void put_varint(sn_str *s, uint64_t v) {
    for (; v >= 0x80; v >>= 7) sn_str_char(s, (char)(v | 0x80));
    sn_str_char(s, (char)v);
}

static void put_fixed(sn_str *s, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) sn_str_char(s, (char)(v >> 8 * i));
}

static void put_bytes(sn_str *s, int field, const char *data, size_t n) {
    put_varint(s, (uint64_t)field);
    put_varint(s, n);
    sn_str_append(s, data, n);
}

/* Masked, because a CRC of data that contains its own CRC is weak. */
static uint32_t masked_crc(const char *data, size_t n) {
    uint32_t crc = sn_crc32c(0, data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void start_event(sn_events *e, int64_t step) {
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, 8);
    sn_str_clear(&e->event);
    sn_str_char(&e->event, EVENT_WALL_TIME);
    put_fixed(&e->event, bits, 8);
    sn_str_char(&e->event, EVENT_STEP);
    put_varint(&e->event, (uint64_t)step);
}

static sn_status write_event(sn_events *e) {
    sn_str *r = &e->record;
    sn_str_clear(r);
    put_fixed(r, e->event.size, 8);
    if (!r->failed) put_fixed(r, masked_crc(r->data, 8), 4);
    sn_str_append(r, e->event.data, e->event.size);
    put_fixed(r, e->event.failed ? 0 : masked_crc(e->event.data, e->event.size), 4);
    if (r->failed || e->event.failed || e->inner.failed || e->value.failed)
        return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot build a record", e->path);
    ssize_t put = write(e->fd, r->data, r->size);
    if (put == (ssize_t)r->size) return SN_OK;
    return sn_fail(SN_ERR_FILE, "cannot write %s: %s", e->path, put < 0 ? strerror(errno) : "no space for a whole record");
}

static sn_status open_new(sn_events *e, const char *folder) {
    struct utsname host;
    sn_str name = {0};
    if (uname(&host)) memcpy(host.nodename, "localhost", 10);
    for (int n = 0; n < 1000 && e->fd < 0; n++) {
        sn_str_clear(&name);
        sn_str_printf(&name, "events.out.tfevents.%lld.%s.%ld.%d", (long long)time(NULL), host.nodename, (long)getpid(), n);
        sn_free(e->path);
        e->path = name.failed ? NULL : sn_path_join(folder, name.data);
        if (!e->path) break;
        e->fd = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (e->fd < 0 && errno != EEXIST) break;
    }
    sn_str_free(&name);
    if (!e->path) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot name an event file", folder);
    return e->fd >= 0 ? SN_OK : sn_fail(SN_ERR_FILE, "cannot create %s: %s", e->path, strerror(errno));
}

sn_status sn_events_open(const char *folder, int64_t first_step, sn_events **out) {
    *out = NULL;
    SN_TRY(sn_make_dirs(folder));
    sn_events *e = sn_alloc_zero(1, sizeof *e);
    if (!e) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot open an event file", folder);
    e->fd = -1;
    sn_status s = open_new(e, folder);
    if (s == SN_OK) {
        start_event(e, 0);
        put_bytes(&e->event, EVENT_FILE_VERSION, "brain.Event:2", 13);
        s = write_event(e);
    }
    if (s == SN_OK && first_step > 0) {
        const char status[] = {SESSION_STATUS, SESSION_START};
        start_event(e, first_step);
        put_bytes(&e->event, EVENT_SESSION_LOG, status, sizeof status);
        s = write_event(e);
    }
    if (s != SN_OK) sn_events_close(e);
    else *out = e;
    return s;
}

void sn_events_close(sn_events *e) {
    if (!e) return;
    if (e->fd >= 0) close(e->fd);
    sn_free(e->path);
    sn_str_free(&e->event);
    sn_str_free(&e->inner);
    sn_str_free(&e->value);
    sn_str_free(&e->record);
    sn_free(e);
}

const char *sn_events_path(const sn_events *e) { return e->path; }

sn_status sn_events_scalar(sn_events *e, const char *tag, int64_t step, double value) {
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    sn_str_clear(&e->value);
    put_bytes(&e->value, VALUE_TAG, tag, strlen(tag));
    sn_str_char(&e->value, VALUE_SIMPLE);
    put_fixed(&e->value, bits, 4);
    sn_str_clear(&e->inner);
    put_bytes(&e->inner, SUMMARY_VALUE, e->value.data, e->value.size);
    start_event(e, step);
    put_bytes(&e->event, EVENT_SUMMARY, e->inner.data, e->inner.size);
    return write_event(e);
}
