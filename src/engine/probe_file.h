/* probe.json: what this machine can do at most, as it was measured; what kernels and plans are measured against. */
#ifndef SN_ENGINE_PROBE_FILE_H
#define SN_ENGINE_PROBE_FILE_H

#include "plan/forecast.h"

typedef struct sn_probe_disk {
    char folder[256];               /* absolute */
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

/* How many `threads` stands for; 0: all processors. */
int sn_probe_threads(int threads);

/* The absolute name of a folder; false: there is none, or it is too long. */
bool sn_probe_folder(const char *folder, char out[256]);

/* NULL: the folder was not measured. */
const sn_probe_disk *sn_probe_find_disk(const sn_probe *p, const char *folder);

/* probe.json of the store, when it was measured with this processor's features and as many threads; else *found is false. */
sn_status sn_probe_cached(int threads, sn_probe *out, bool *found);

/* Writes it. */
sn_status sn_probe_keep(const sn_probe *p);

#endif
