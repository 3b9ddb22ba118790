/* What this machine can do at most: rates that kernels and plans are measured against. */
#ifndef SN_ENGINE_PROBE_H
#define SN_ENGINE_PROBE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct sn_probe {
    char features[96]; /* sn_cpu_text() */
    int threads;
    double f32_flops, bf16_flops, int8_ops; /* a second, by all threads: multiply-adds count two; 0: no such unit */
    double read_bytes;                      /* a second, from memory */
} sn_probe;

/* Measures with a team of `threads` (0: all processors): under a second and 256 MiB. */
sn_status sn_probe_measure(int threads, sn_probe *out);

/* probe.json of the store, when it was measured with these features and threads; else *found is false. */
sn_status sn_probe_cached(int threads, sn_probe *out, bool *found);

/* The cached one, or measures and writes it. again: always measures. *cached says which. */
sn_status sn_probe_get(int threads, bool again, sn_probe *out, bool *cached);

#endif
