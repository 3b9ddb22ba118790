/* The end of a file that was written under a temporary name. */
#ifndef SN_IO_COMMIT_H
#define SN_IO_COMMIT_H

#include "base/status.h"

/* fsyncs and closes *fd (then -1), renames temporary to path, fsyncs the folder. On failure the temporary file is
 * removed and an older file under `path` stays. */
sn_status sn_file_commit(int *fd, const char *temporary, const char *path);

#endif
