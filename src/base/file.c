#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

sn_status sn_file_open(const char *path, int *fd, uint64_t *size) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return sn_fail(SN_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    if (fstat(*fd, &st) || !S_ISREG(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return sn_fail(SN_ERR_FILE, "%s is not a regular file", path);
    }
    if (size) *size = (uint64_t)st.st_size;
    return SN_OK;
}

sn_status sn_file_read_at(int fd, const char *path, uint64_t offset, void *data, size_t n) {
    char *at = data;
    while (n) {
        ssize_t got = pread(fd, at, n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sn_fail(SN_ERR_FILE, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) return sn_fail(SN_ERR_FORMAT, "%s ends early: %zu bytes missing at %llu", path, n, (unsigned long long)offset);
        at += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return SN_OK;
}

sn_status sn_file_write_at(int fd, const char *path, uint64_t offset, const void *data, size_t n) {
    const char *at = data;
    while (n) {
        ssize_t put = pwrite(fd, at, n, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return sn_fail(SN_ERR_FILE, "cannot write %s: %s", path, strerror(errno));
        at += put;
        offset += (uint64_t)put;
        n -= (size_t)put;
    }
    return SN_OK;
}

sn_status sn_file_read_all(const char *path, size_t max_bytes, char **data, size_t *size) {
    int fd;
    uint64_t bytes;
    *data = NULL;
    SN_TRY(sn_file_open(path, &fd, &bytes));
    sn_status s = SN_OK;
    if (bytes > max_bytes)
        s = sn_fail(SN_ERR_FORMAT, "%s has %llu bytes, more than the %zu allowed", path, (unsigned long long)bytes, max_bytes);
    if (s == SN_OK && !(*data = sn_alloc((size_t)bytes + 1)))
        s = sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %llu bytes for %s", (unsigned long long)bytes, path);
    if (s == SN_OK) s = sn_file_read_at(fd, path, 0, *data, (size_t)bytes);
    close(fd);
    if (s != SN_OK) {
        sn_free(*data);
        *data = NULL;
        return s;
    }
    (*data)[bytes] = 0;
    if (size) *size = (size_t)bytes;
    return SN_OK;
}

sn_status sn_sync_dir(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return sn_fail(SN_ERR_FILE, "cannot open folder %s: %s", path, strerror(errno));
    int bad = fsync(fd);
    close(fd);
    return bad ? sn_fail(SN_ERR_FILE, "cannot sync folder %s: %s", path, strerror(errno)) : SN_OK;
}

sn_status sn_file_replace(const char *path, const void *data, size_t n) {
    sn_str temporary = {0}, folder = {0};
    sn_str_printf(&temporary, "%s.tmp", path);
    const char *slash = strrchr(path, '/');
    if (!slash) sn_str_add(&folder, ".");
    else sn_str_append(&folder, path, slash == path ? 1 : (size_t)(slash - path));
    sn_status s = SN_OK;
    if (temporary.failed || folder.failed) {
        s = sn_fail(SN_ERR_NO_MEMORY, "cannot name %s.tmp", path);
        goto done;
    }
    int fd = open(temporary.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        s = sn_fail(SN_ERR_FILE, "cannot create %s: %s", temporary.data, strerror(errno));
        goto done;
    }
    s = sn_file_write_at(fd, temporary.data, 0, data, n);
    if (s == SN_OK && fsync(fd)) s = sn_fail(SN_ERR_FILE, "cannot sync %s: %s", temporary.data, strerror(errno));
    if (close(fd) && s == SN_OK) s = sn_fail(SN_ERR_FILE, "cannot close %s: %s", temporary.data, strerror(errno));
    if (s == SN_OK && rename(temporary.data, path)) s = sn_fail(SN_ERR_FILE, "cannot rename %s: %s", temporary.data, strerror(errno));
    if (s == SN_OK) s = sn_sync_dir(folder.data);
    if (s != SN_OK) unlink(temporary.data);
done:
    sn_str_free(&temporary);
    sn_str_free(&folder);
    return s;
}

sn_status sn_make_dirs(const char *path) {
    char *copy = sn_strdup(path);
    if (!copy) return sn_fail(SN_ERR_NO_MEMORY, "cannot copy a path");
    sn_status s = SN_OK;
    for (char *p = copy + 1; s == SN_OK; p++) {
        if (*p && *p != '/') continue;
        char end = *p;
        *p = 0;
        if (mkdir(copy, 0777) && errno != EEXIST) s = sn_fail(SN_ERR_FILE, "cannot make folder %s: %s", copy, strerror(errno));
        *p = end;
        if (!end) break;
    }
    sn_free(copy);
    if (s == SN_OK && !sn_path_is_dir(path)) s = sn_fail(SN_ERR_FILE, "%s is not a folder", path);
    return s;
}

sn_status sn_remove_tree(const char *path) {
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT ? SN_OK : sn_fail(SN_ERR_FILE, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return unlink(path) ? sn_fail(SN_ERR_FILE, "cannot remove %s: %s", path, strerror(errno)) : SN_OK;
    DIR *dir = opendir(path);
    if (!dir) return sn_fail(SN_ERR_FILE, "cannot open folder %s: %s", path, strerror(errno));
    sn_status s = SN_OK;
    for (struct dirent *e; s == SN_OK && (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *child = sn_path_join(path, e->d_name);
        s = child ? sn_remove_tree(child) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
        sn_free(child);
    }
    closedir(dir);
    if (s == SN_OK && rmdir(path)) s = sn_fail(SN_ERR_FILE, "cannot remove folder %s: %s", path, strerror(errno));
    return s;
}

bool sn_path_exists(const char *path) { return access(path, F_OK) == 0; }

bool sn_path_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *sn_path_join(const char *dir, const char *name) {
    sn_str s = {0};
    sn_str_add(&s, dir);
    if (s.size && s.data[s.size - 1] != '/') sn_str_char(&s, '/');
    sn_str_add(&s, name);
    if (s.failed) sn_str_free(&s);
    return s.data;
}
