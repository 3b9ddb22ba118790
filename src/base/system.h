/* What the operating system says about memory and disk. All figures are bytes. */
#ifndef SN_BASE_SYSTEM_H
#define SN_BASE_SYSTEM_H

#include <stdint.h>

#include "base/status.h"

/* Seconds of a clock that never goes back. */
double sn_now(void);

/* This process: resident now (VmRSS) and at its peak (VmHWM) from /proc/self/status; 0 where that file is absent.
 * The kernel counts per processor: the peak can be shown some hundred KiB below the true one. */
uint64_t sn_rss_bytes(void);
uint64_t sn_peak_rss_bytes(void);

/* MemTotal and MemAvailable of the machine from /proc/meminfo; 0 where that file is absent. */
uint64_t sn_memory_total(void);
uint64_t sn_memory_available(void);

/* Memory limits of control groups, over the process's group and all its ancestors. */
typedef struct sn_cgroup_memory {
    uint64_t limit; /* the smallest limit; UINT64_MAX: none */
    uint64_t free;  /* the smallest of limit - (usage - inactive_file), page cache that can go counts as free */
} sn_cgroup_memory;

/* Versions 1 and 2. A file that is absent sets no limit. */
sn_cgroup_memory sn_cgroup_memory_now(void);

/* The same for a given text of /proc/self/cgroup and a folder in the place of /sys/fs/cgroup. */
sn_cgroup_memory sn_cgroup_memory_at(const char *proc_cgroup, const char *root);

/* Bytes that this process could still take: the smaller of MemAvailable and what its control groups leave. */
uint64_t sn_memory_free(void);

/* Bytes that an unprivileged process may still write to the file system of `path`; of its nearest existing folder
 * when path does not exist yet. */
sn_status sn_disk_free(const char *path, uint64_t *bytes);

#endif
