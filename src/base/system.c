#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { PROC_TEXT = 16384 };

/* Files below /proc and /sys have no size: read until the end, without allocating, so that it works near the limit. */
static bool read_text(const char *path, char text[PROC_TEXT]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t n = 0;
    for (ssize_t got; n < PROC_TEXT - 1; n += (size_t)got) {
        got = read(fd, text + n, PROC_TEXT - 1 - n);
        if (got < 0 && errno == EINTR) got = 0;
        else if (got <= 0) break;
    }
    close(fd);
    text[n] = 0;
    return true;
}

/* The number after `key` at the start of a line. */
static bool number_after(const char *text, const char *key, uint64_t *out) {
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, n)) continue;
        char *end;
        errno = 0;
        unsigned long long v = strtoull(line + n, &end, 10);
        if (end == line + n || errno) return false;
        *out = v;
        return true;
    }
    return false;
}

static uint64_t kib_of(const char *path, const char *key) {
    char text[PROC_TEXT];
    uint64_t kib = 0;
    return read_text(path, text) && number_after(text, key, &kib) && kib <= UINT64_MAX / 1024 ? kib * 1024 : 0;
}

double sn_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t sn_rss_bytes(void) { return kib_of("/proc/self/status", "VmRSS:"); }
uint64_t sn_peak_rss_bytes(void) { return kib_of("/proc/self/status", "VmHWM:"); }
uint64_t sn_memory_total(void) { return kib_of("/proc/meminfo", "MemTotal:"); }
uint64_t sn_memory_available(void) { return kib_of("/proc/meminfo", "MemAvailable:"); }

/* Where one version keeps its figures. */
typedef struct cgroup_files {
    const char *folder, *limit, *usage, *cache_key;
} cgroup_files;
static const cgroup_files version_1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const cgroup_files version_2 = {"", "memory.max", "memory.current", "inactive_file "};

/* Version 1 writes "no limit" as the largest multiple of a page. */
static const uint64_t no_limit = UINT64_C(1) << 62;

static void look_at_group(sn_cgroup_memory *m, const cgroup_files *files, const char *root, const char *group) {
    char path[4400], text[PROC_TEXT];
    uint64_t limit, used = 0, cache = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->folder, group, files->limit);
    if (!read_text(path, text) || !number_after(text, "", &limit) || limit >= no_limit) return;
    snprintf(path, sizeof path, "%s%s%s/%s", root, files->folder, group, files->usage);
    if (read_text(path, text)) number_after(text, "", &used);
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, files->folder, group);
    if (read_text(path, text)) number_after(text, files->cache_key, &cache);
    used -= cache < used ? cache : used;
    uint64_t left = limit > used ? limit - used : 0;
    if (limit < m->limit) m->limit = limit;
    if (left < m->free) m->free = left;
}

/* Inside a container the mount may begin below the group that /proc names, so missing levels are passed over up to
 * the mount itself. */
static void look_up_the_tree(sn_cgroup_memory *m, const cgroup_files *files, const char *root, char *group) {
    for (;;) {
        size_t n = strlen(group);
        if (n && group[n - 1] == '/') group[n - 1] = 0;
        look_at_group(m, files, root, group);
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = 0;
    }
}

sn_cgroup_memory sn_cgroup_memory_at(const char *proc_cgroup, const char *root) {
    sn_cgroup_memory m = {UINT64_MAX, UINT64_MAX};
    for (const char *line = proc_cgroup; *line;) {
        size_t n = strcspn(line, "\n");
        char copy[4096];
        snprintf(copy, sizeof copy, "%.*s", (int)(n < sizeof copy ? n : sizeof copy - 1), line);
        char *controllers = strchr(copy, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (group) {
            *group++ = 0;
            controllers++;
            if (!*controllers) look_up_the_tree(&m, &version_2, root, group);
            for (char *save, *name = strtok_r(controllers, ",", &save); name; name = strtok_r(NULL, ",", &save))
                if (!strcmp(name, "memory")) look_up_the_tree(&m, &version_1, root, group);
        }
        line += n + (line[n] == '\n');
    }
    return m;
}

sn_cgroup_memory sn_cgroup_memory_now(void) {
    char text[PROC_TEXT];
    return sn_cgroup_memory_at(read_text("/proc/self/cgroup", text) ? text : "", "/sys/fs/cgroup");
}

uint64_t sn_memory_free(void) {
    uint64_t machine = sn_memory_available(), group = sn_cgroup_memory_now().free;
    return machine && machine < group ? machine : group;
}

sn_status sn_disk_free(const char *path, uint64_t *bytes) {
    char *folder = sn_strdup(path);
    if (!folder) return sn_fail(SN_ERR_NO_MEMORY, "cannot copy a path");
    struct statvfs st;
    sn_status s = SN_OK;
    const char *at = *folder ? folder : ".";
    while (s == SN_OK && statvfs(at, &st)) {
        char *slash = strrchr(folder, '/');
        if (errno != ENOENT || !strcmp(at, ".") || !strcmp(at, "/"))
            s = sn_fail(SN_ERR_FILE, "cannot ask for the free space of %s: %s", path, strerror(errno));
        else if (!slash) at = ".";
        else slash[slash == folder] = 0; /* keeps the root's slash */
    }
    if (s == SN_OK) {
        size_t n;
        if (!sn_mul(st.f_bavail, st.f_frsize, &n)) n = SIZE_MAX;
        *bytes = n;
    }
    sn_free(folder);
    return s;
}
