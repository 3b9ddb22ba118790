/* Preloaded into a rank by faults.sh: kills it at the n-th call that changes something below a folder whose name has "checkpoint-" in it.
 *   KILL_RANK  the rank that dies    KILL_AT  at which call, from 1    KILL_LOG  a file that gets a line per call, if set */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static void count(const char *path, const char *what) {
    const char *victim = getenv("KILL_RANK"), *at = getenv("KILL_AT"), *log = getenv("KILL_LOG"), *rank = getenv("RANK");
    if (!rank) rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!victim || !rank || strcmp(victim, rank) || !strstr(path, "checkpoint-")) return;
    const long n = atomic_fetch_add(&calls, 1) + 1;
    if (log) {
        char line[512];
        const int length = snprintf(line, sizeof line, "%ld %s %.400s\n", n, what, path);
        const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        ssize_t (*put)(int, const void *, size_t);
        *(void **)&put = dlsym(RTLD_NEXT, "write");
        if (fd >= 0) {
            put(fd, line, (size_t)length);
            close(fd);
        }
    }
    if (at && n == atol(at)) raise(SIGKILL);
}

static void count_fd(int fd, const char *what) {
    char name[64], path[400];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(name, path, sizeof path - 1);
    if (n < 0) return;
    path[n] = 0;
    count(path, what);
}

#define NEXT(result, name, parameters) \
    static result(*next) parameters;   \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, name)

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    NEXT(ssize_t, "pwrite", (int, const void *, size_t, off_t));
    count_fd(fd, "pwrite");
    return next(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    NEXT(ssize_t, "pwrite64", (int, const void *, size_t, off64_t));
    count_fd(fd, "pwrite");
    return next(fd, data, n, at);
}

ssize_t write(int fd, const void *data, size_t n) {
    NEXT(ssize_t, "write", (int, const void *, size_t));
    count_fd(fd, "write");
    return next(fd, data, n);
}

int fsync(int fd) {
    NEXT(int, "fsync", (int));
    count_fd(fd, "fsync");
    return next(fd);
}

int rename(const char *from, const char *to) {
    NEXT(int, "rename", (const char *, const char *));
    count(from, "rename");
    return next(from, to);
}

int unlink(const char *path) {
    NEXT(int, "unlink", (const char *));
    count(path, "unlink");
    return next(path);
}
