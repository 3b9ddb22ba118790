/* What instructions of the io queue read and write: the files of a plan, named by their index in its list and opened with the
 * run, and the file behind the disk arena. */
#ifndef SN_PROGRAM_FILES_H
#define SN_PROGRAM_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sn_program_file {
    const char *path;
} sn_program_file;

/* The disk arena: a file without a name, of its full size from the start. */
typedef struct sn_disk {
    int fd, direct;   /* direct: past the page cache; -1: this file system cannot */
    const char *path; /* of its folder */
    bool made;        /* the folder; sn_disk_close removes it again if it is empty */
    uint64_t bytes;
    struct sn_disk_ring *ring; /* several transfers at once (io_uring); NULL: one after the other */
} sn_disk;

enum { SN_DISK_ALIGN = 4096 }; /* what the direct way asks of offset, address and size */

/* Makes the arena's file in a folder: created under a new name, its blocks taken (SN_ERR_FILE when the disk has no room), the
 * name removed, so that nothing is left behind however the process ends. It reads as zeros. 0 bytes: no file. */
sn_status sn_disk_open(const char *folder, uint64_t bytes, sn_disk *out);
void sn_disk_close(sn_disk *d); /* also a zeroed one */

/* Exactly n bytes at an offset of the arena. What is aligned goes past the page cache. */
sn_status sn_disk_read(const sn_disk *d, uint64_t offset, void *data, size_t n);
sn_status sn_disk_write(const sn_disk *d, uint64_t offset, const void *data, size_t n);

/* The same as transfers that go on while the caller does, each under a ticket below SN_DISK_TRANSFERS that is free. Data must stay
 * until it has ended. Where there is no ring, and of what is not aligned, a transfer has ended when sn_disk_start returns. */
enum { SN_DISK_TRANSFERS = 32 };
sn_status sn_disk_start(const sn_disk *d, bool write, uint64_t offset, void *data, size_t n, unsigned ticket);
bool sn_disk_under_way(const sn_disk *d, unsigned ticket);

/* Waits until a transfer under this ticket, of those under way, has ended; with it, others may have. Its failure. */
sn_status sn_disk_finish(const sn_disk *d, unsigned ticket);

/* Takes a ring where the build and the system have io_uring; fails only for want of memory. One thread at a time uses it. */
sn_status sn_disk_ring_open(sn_disk *d);
void sn_disk_ring_close(sn_disk *d);

/* The opened files of a run. */
typedef struct sn_files {
    const sn_program_file *list;
    int *fds;
    int count;
    sn_disk disk;
} sn_files;

/* Opens all files of the list, for reading. SN_ERR_FILE names the one that cannot be opened; none is open then. The list
 * must outlive the files. */
sn_status sn_files_open(const sn_program_file *list, int count, sn_files *out);
void sn_files_close(sn_files *f); /* also a zeroed one */

#endif
