#include "io/commit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

sn_status sn_file_commit(int *fd, const char *temporary, const char *path) {
    sn_status s = SN_OK;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? sn_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : sn_strdup(".");
    if (!folder) s = sn_fail(SN_ERR_NO_MEMORY, "%s: cannot name its folder", path);
    if (s == SN_OK && fsync(*fd)) s = sn_fail(SN_ERR_FILE, "cannot sync %s: %s", temporary, strerror(errno));
    if (close(*fd) && s == SN_OK) s = sn_fail(SN_ERR_FILE, "cannot close %s: %s", temporary, strerror(errno));
    *fd = -1;
    if (s == SN_OK && rename(temporary, path)) s = sn_fail(SN_ERR_FILE, "cannot rename %s: %s", temporary, strerror(errno));
    if (s == SN_OK) s = sn_sync_dir(folder);
    else unlink(temporary);
    sn_free(folder);
    return s;
}
