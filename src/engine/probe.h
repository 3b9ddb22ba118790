/* What this machine can do at most: rates that kernels and plans are measured against. */
#ifndef SN_ENGINE_PROBE_H
#define SN_ENGINE_PROBE_H

#include "plan/forecast.h"

typedef struct sn_probe_disk {
    char folder[256]; /* absolute */
    double read_bytes, write_bytes; /* a second */
} sn_probe_disk;

typedef struct sn_probe {
    char features[96]; /* sn_cpu_text() */
    int threads;
    double f32_flops, bf16_flops, int8_ops; /* a second, by all threads: multiply-adds count two; 0: no such unit */
    double read_bytes;                      /* a second, from memory */
    sn_profile profile;                     /* what kernels take against these: see engine/profile.h */
    sn_probe_disk disks[4];                 /* the newest first */
    int n_disks;
} sn_probe;

/* Measures with a team of `threads` (0: all processors): peaks and profile, no disks; several seconds, some 400 MiB. */
sn_status sn_probe_measure(int threads, sn_probe *out);

/* NULL: the folder was not measured. */
const sn_probe_disk *sn_probe_find_disk(const sn_probe *p, const char *folder);

/* probe.json of the store, when it was measured with these features and threads; else *found is false. */
sn_status sn_probe_cached(int threads, sn_probe *out, bool *found);

/* The cached one, or measures and writes it. again: always measures. folder (may be NULL or ""): its disk is measured too, unless it was and
 * `again` is false. *cached: nothing was measured. */
sn_status sn_probe_get(int threads, bool again, const char *folder, sn_probe *out, bool *cached);

#endif
