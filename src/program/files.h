/* What instructions of the io queue read and write: the files of a plan, named by their index in its list and opened with the
 * run, and the file behind the disk arena. */
#ifndef SN_PROGRAM_FILES_H
#define SN_PROGRAM_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sn_program_file {
    const char *path;
} sn_program_file;

/* The disk arena: a file without a name, of its full size from the start. */
typedef struct sn_disk {
    int fd, direct;   /* direct: past the page cache; -1: this file system cannot */
    const char *path; /* of its folder, for messages */
    uint64_t bytes;
} sn_disk;

enum { SN_DISK_ALIGN = 4096 }; /* what the direct way asks of offset, address and size */

/* Makes the arena's file in a folder: created under a new name, its blocks taken (SN_ERR_FILE when the disk has no room), the
 * name removed, so that nothing is left behind however the process ends. It reads as zeros. 0 bytes: no file. */
sn_status sn_disk_open(const char *folder, uint64_t bytes, sn_disk *out);
void sn_disk_close(sn_disk *d); /* also a zeroed one */

/* Exactly n bytes at an offset of the arena. What is aligned goes past the page cache. */
sn_status sn_disk_read(const sn_disk *d, uint64_t offset, void *data, size_t n);
sn_status sn_disk_write(const sn_disk *d, uint64_t offset, const void *data, size_t n);

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
