/* The disk arena. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "program/files.h"

static sn_status take_blocks(const sn_disk *d) {
    int error;
    do error = posix_fallocate(d->fd, 0, (off_t)d->bytes);
    while (error == EINTR);
    if (!error) return SN_OK;
    return sn_fail(SN_ERR_FILE, "cannot take %llu bytes for values that rest on disk in %s: %s", (unsigned long long)d->bytes, d->path,
                   strerror(error));
}

sn_status sn_disk_open(const char *folder, uint64_t bytes, sn_disk *out) {
    *out = (sn_disk){.fd = -1, .direct = -1, .path = folder, .bytes = bytes};
    if (!bytes) return SN_OK;
    out->made = !sn_path_is_dir(folder);
    SN_TRY(sn_make_dirs(folder));
    sn_str name = {0};
    sn_str_printf(&name, "%s/.snug-XXXXXX", folder);
    if (name.failed) {
        sn_str_free(&name);
        return sn_fail(SN_ERR_NO_MEMORY, "cannot name a file in %s", folder);
    }
    sn_status s = SN_OK;
    out->fd = mkostemp(name.data, O_CLOEXEC);
    if (out->fd < 0) s = sn_fail(SN_ERR_FILE, "cannot create a file in %s: %s", folder, strerror(errno));
    else {
        out->direct = open(name.data, O_RDWR | O_DIRECT | O_CLOEXEC);
        unlink(name.data);
        s = take_blocks(out);
    }
    if (s == SN_OK) s = sn_disk_ring_open(out);
    sn_str_free(&name);
    if (s != SN_OK) sn_disk_close(out);
    return s;
}

void sn_disk_close(sn_disk *d) {
    sn_disk_ring_close(d);
    if (d->bytes && d->fd >= 0) close(d->fd);
    if (d->bytes && d->direct >= 0) close(d->direct);
    if (d->made) rmdir(d->path); /* stays where others have put something into it */
    *d = (sn_disk){0};
}

/* How many of n bytes can go past the page cache: whole blocks from aligned places. */
static size_t direct_part(const sn_disk *d, uint64_t offset, const void *data, size_t n) {
    bool aligned = d->direct >= 0 && !(offset % SN_DISK_ALIGN) && !((uintptr_t)data % SN_DISK_ALIGN);
    return aligned ? n / SN_DISK_ALIGN * SN_DISK_ALIGN : 0;
}

static sn_status check(const sn_disk *d, uint64_t offset, size_t n) {
    if (offset <= d->bytes && n <= d->bytes - offset) return SN_OK;
    return sn_fail(SN_ERR_INTERNAL, "%zu bytes at %llu are outside the disk arena of %llu", n, (unsigned long long)offset,
                   (unsigned long long)d->bytes);
}

sn_status sn_disk_read(const sn_disk *d, uint64_t offset, void *data, size_t n) {
    SN_TRY(check(d, offset, n));
    size_t direct = direct_part(d, offset, data, n);
    if (direct) SN_TRY(sn_file_read_at(d->direct, d->path, offset, data, direct));
    return direct == n ? SN_OK : sn_file_read_at(d->fd, d->path, offset + direct, (char *)data + direct, n - direct);
}

sn_status sn_disk_write(const sn_disk *d, uint64_t offset, const void *data, size_t n) {
    SN_TRY(check(d, offset, n));
    size_t direct = direct_part(d, offset, data, n);
    if (direct) SN_TRY(sn_file_write_at(d->direct, d->path, offset, data, direct));
    return direct == n ? SN_OK : sn_file_write_at(d->fd, d->path, offset + direct, (const char *)data + direct, n - direct);
}
