/* What instructions of the io queue read: the files of a plan, named by their index in its list and opened with the run. */
#ifndef SN_PROGRAM_FILES_H
#define SN_PROGRAM_FILES_H

#include "base/status.h"

typedef struct sn_program_file {
    const char *path;
} sn_program_file;

/* The opened files of a run. */
typedef struct sn_files {
    const sn_program_file *list;
    int *fds;
    int count;
} sn_files;

/* Opens all files of the list, for reading. SN_ERR_FILE names the one that cannot be opened; none is open then. The list
 * must outlive the files. */
sn_status sn_files_open(const sn_program_file *list, int count, sn_files *out);
void sn_files_close(sn_files *f); /* also a zeroed one */

#endif
