/* Files: whole-file reading, exact positioned reads and writes, atomic replacement.
 * Files are read, never mapped: mapped pages would count in the process's peak without standing in the plan. */
#ifndef SN_BASE_FILE_H
#define SN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Reads a whole file of at most max_bytes into *data (sn_free it), with a NUL after its end. */
sn_status sn_file_read_all(const char *path, size_t max_bytes, char **data, size_t *size);

/* Reads exactly n bytes at offset; a short file is SN_ERR_FORMAT naming the path. */
sn_status sn_file_read_at(int fd, const char *path, uint64_t offset, void *data, size_t n);
sn_status sn_file_write_at(int fd, const char *path, uint64_t offset, const void *data, size_t n);

sn_status sn_file_open(const char *path, int *fd, uint64_t *size); /* for reading */

/* Writes path.tmp, fsyncs it, renames it to path and fsyncs the folder. */
sn_status sn_file_replace(const char *path, const void *data, size_t n);

sn_status sn_make_dirs(const char *path);   /* like mkdir -p */
sn_status sn_remove_tree(const char *path); /* like rm -r; a missing path is fine */
sn_status sn_sync_dir(const char *path);
bool sn_path_exists(const char *path);
bool sn_path_is_dir(const char *path);
char *sn_path_join(const char *dir, const char *name); /* sn_free it; NULL when memory is gone */

#endif
