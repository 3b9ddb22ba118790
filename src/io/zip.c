#include "io/zip.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/mem.h"

enum { END_BYTES = 22, CENTRAL_BYTES = 46, LOCAL_BYTES = 30, CHUNK = 1 << 17 };
enum { FLAG_ENCRYPTED = 1, METHOD_STORED = 0, METHOD_DEFLATED = 8 };
static const size_t max_directory = 64u << 20;

struct sn_zip {
    int fd;
    uint64_t size;
    char *path;
    sn_zip_member *members;
    size_t count;
    sn_pool names;
};

static uint32_t u16(const uint8_t *p) { return (uint32_t)(p[0] | p[1] << 8); }
static uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }

/* The end record stands in the last 22 bytes, or before a comment of up to 65,535 bytes. Searched backwards: the last
 * one whose comment ends with the file. */
static sn_status find_end(const sn_zip *zip, uint64_t *at, uint8_t end[END_BYTES]) {
    if (zip->size < END_BYTES) return sn_fail(SN_ERR_FORMAT, "%s: too short for a zip archive", zip->path);
    size_t n = zip->size < END_BYTES + 65535 ? (size_t)zip->size : END_BYTES + 65535;
    uint8_t *tail = sn_alloc(n);
    if (!tail) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate %zu bytes", zip->path, n);
    sn_status s = sn_file_read_at(zip->fd, zip->path, zip->size - n, tail, n);
    bool found = false;
    for (size_t i = n - END_BYTES + 1; s == SN_OK && !found && i-- > 0;) {
        if (u32(tail + i) != 0x06054b50 || i + END_BYTES + u16(tail + i + 20) != n) continue;
        memcpy(end, tail + i, END_BYTES);
        *at = zip->size - n + i;
        found = true;
    }
    sn_free(tail);
    if (s == SN_OK && !found) s = sn_fail(SN_ERR_FORMAT, "%s: not a zip archive (no end record)", zip->path);
    return s;
}

/* Parses one entry of the central directory at p, of which `left` bytes remain; *used receives its length. */
static sn_status parse_entry(sn_zip *zip, const uint8_t *p, size_t left, uint64_t directory, sn_zip_member *m, size_t *used) {
    if (left < CENTRAL_BYTES || u32(p) != 0x02014b50)
        return sn_fail(SN_ERR_FORMAT, "%s: broken central directory at member %zu", zip->path, zip->count);
    size_t name = u16(p + 28);
    *used = CENTRAL_BYTES + name + u16(p + 30) + u16(p + 32);
    if (*used > left) return sn_fail(SN_ERR_FORMAT, "%s: member %zu runs past the central directory", zip->path, zip->count);
    char *text = sn_pool_alloc(&zip->names, name + 1);
    if (!text) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot keep a member's name", zip->path);
    memcpy(text, p + CENTRAL_BYTES, name);
    if (strlen(text) != name) return sn_fail(SN_ERR_FORMAT, "%s: the name of member %zu contains NUL", zip->path, zip->count);
    *m = (sn_zip_member){text, u32(p + 24), u32(p + 20), u32(p + 42), u32(p + 16), (int)u16(p + 10)};
    if (m->bytes == UINT32_MAX || m->packed == UINT32_MAX || m->offset == UINT32_MAX)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: %s needs ZIP64", zip->path, text);
    if (u16(p + 8) & FLAG_ENCRYPTED) return sn_fail(SN_ERR_UNSUPPORTED, "%s: %s is encrypted", zip->path, text);
    if (m->offset + LOCAL_BYTES + m->packed > directory)
        return sn_fail(SN_ERR_FORMAT, "%s: %s runs past the archive's data", zip->path, text);
    return SN_OK;
}

static sn_status read_directory(sn_zip *zip) {
    uint8_t end[END_BYTES] = {0};
    uint64_t end_at = 0;
    SN_TRY(find_end(zip, &end_at, end));
    size_t count = u16(end + 10), bytes = u32(end + 12);
    uint64_t at = u32(end + 16);
    if (count == 0xffff || bytes == UINT32_MAX || at == UINT32_MAX)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: ZIP64 archives are not read", zip->path);
    if (u16(end + 4) || u16(end + 6) || u16(end + 8) != count)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: an archive of several parts", zip->path);
    if (at + bytes > end_at || bytes > max_directory || bytes < count * CENTRAL_BYTES)
        return sn_fail(SN_ERR_FORMAT, "%s: central directory of %zu bytes at %llu does not fit a file of %llu", zip->path, bytes,
                       (unsigned long long)at, (unsigned long long)zip->size);
    uint8_t *directory = sn_alloc(bytes + 1);
    zip->members = sn_alloc_zero(count + 1, sizeof *zip->members);
    sn_status s = directory && zip->members ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate the directory", zip->path);
    if (s == SN_OK) s = sn_file_read_at(zip->fd, zip->path, at, directory, bytes);
    for (size_t used = 0, pos = 0; s == SN_OK && zip->count < count; pos += used) {
        s = parse_entry(zip, directory + pos, bytes - pos, at, &zip->members[zip->count], &used);
        if (s == SN_OK) zip->count++;
    }
    sn_free(directory);
    return s;
}

sn_status sn_zip_open(const char *path, sn_zip **out) {
    *out = NULL;
    sn_zip *zip = sn_alloc_zero(1, sizeof *zip);
    if (!zip) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot open", path);
    zip->fd = -1;
    zip->path = sn_strdup(path);
    sn_status s = zip->path ? sn_file_open(path, &zip->fd, &zip->size) : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot open", path);
    if (s == SN_OK) s = read_directory(zip);
    if (s != SN_OK) sn_zip_close(zip);
    else *out = zip;
    return s;
}

void sn_zip_close(sn_zip *zip) {
    if (!zip) return;
    if (zip->fd >= 0) close(zip->fd);
    sn_pool_free(&zip->names);
    sn_free(zip->members);
    sn_free(zip->path);
    sn_free(zip);
}

size_t sn_zip_count(const sn_zip *zip) { return zip->count; }
const sn_zip_member *sn_zip_member_at(const sn_zip *zip, size_t i) { return &zip->members[i]; }

const sn_zip_member *sn_zip_find(const sn_zip *zip, const char *name) {
    for (size_t i = 0; i < zip->count; i++)
        if (!strcmp(zip->members[i].name, name)) return &zip->members[i];
    return NULL;
}

/* What one unpacking has produced so far. */
typedef struct unpacking {
    const sn_zip *zip;
    const sn_zip_member *m;
    sn_zip_sink sink;
    void *context;
    uint64_t bytes;
    uLong crc;
} unpacking;

static sn_status deliver(unpacking *u, const uint8_t *data, size_t n) {
    u->bytes += n;
    /* Checked at once, so that a small archive cannot fill the disk. */
    if (u->bytes > u->m->bytes)
        return sn_fail(SN_ERR_FORMAT, "%s: %s unpacks to more than its %llu bytes", u->zip->path, u->m->name,
                       (unsigned long long)u->m->bytes);
    u->crc = crc32(u->crc, data, (uInt)n);
    return n ? u->sink(u->context, data, n) : SN_OK;
}

static sn_status inflate_chunk(unpacking *u, z_stream *z, uint8_t *out, bool *ended) {
    while (!*ended) {
        z->next_out = out;
        z->avail_out = CHUNK;
        int code = inflate(z, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return sn_fail(SN_ERR_FORMAT, "%s: %s is damaged (%s)", u->zip->path, u->m->name, z->msg ? z->msg : "inflate failed");
        SN_TRY(deliver(u, out, CHUNK - z->avail_out));
        *ended = code == Z_STREAM_END;
        if (z->avail_out) break; /* all of this input is used */
    }
    return SN_OK;
}

static sn_status unpack(unpacking *u, uint64_t at, uint8_t *in, uint8_t *out, z_stream *z) {
    const sn_zip *zip = u->zip;
    bool ended = u->m->method == METHOD_STORED;
    for (uint64_t left = u->m->packed; left && (z == NULL || !ended);) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        SN_TRY(sn_file_read_at(zip->fd, zip->path, at, in, n));
        at += n;
        left -= n;
        if (!z) {
            SN_TRY(deliver(u, in, n));
            continue;
        }
        z->next_in = in;
        z->avail_in = (uInt)n;
        SN_TRY(inflate_chunk(u, z, out, &ended));
    }
    if (!ended || u->bytes != u->m->bytes)
        return sn_fail(SN_ERR_FORMAT, "%s: %s ends after %llu of %llu bytes", zip->path, u->m->name, (unsigned long long)u->bytes,
                       (unsigned long long)u->m->bytes);
    if (u->crc != u->m->crc) return sn_fail(SN_ERR_FORMAT, "%s: %s has CRC-32 %08lx, not %08x", zip->path, u->m->name, u->crc, u->m->crc);
    return SN_OK;
}

sn_status sn_zip_read(const sn_zip *zip, const sn_zip_member *m, sn_zip_sink sink, void *context) {
    uint8_t local[LOCAL_BYTES];
    if (m->method != METHOD_STORED && m->method != METHOD_DEFLATED)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: %s uses compression method %d", zip->path, m->name, m->method);
    SN_TRY(sn_file_read_at(zip->fd, zip->path, m->offset, local, sizeof local));
    uint64_t at = m->offset + LOCAL_BYTES + u16(local + 26) + u16(local + 28);
    if (u32(local) != 0x04034b50 || at + m->packed > zip->size)
        return sn_fail(SN_ERR_FORMAT, "%s: %s has no valid local header", zip->path, m->name);
    uint8_t *in = sn_alloc(CHUNK), *out = sn_alloc(CHUNK);
    z_stream z = {0};
    bool deflated = m->method == METHOD_DEFLATED, started = false;
    sn_status s = in && out ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate buffers", zip->path);
    if (s == SN_OK && deflated) {
        started = inflateInit2(&z, -MAX_WBITS) == Z_OK; /* raw deflate, as zip stores it */
        if (!started) s = sn_fail(SN_ERR_NO_MEMORY, "%s: cannot start inflate", zip->path);
    }
    unpacking u = {zip, m, sink, context, 0, crc32(0, NULL, 0)};
    if (s == SN_OK) s = unpack(&u, at, in, out, deflated ? &z : NULL);
    if (started) inflateEnd(&z);
    sn_free(in);
    sn_free(out);
    return s;
}
