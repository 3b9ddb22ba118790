/* Measures what this machine can do at most. */
#ifndef SN_ENGINE_PROBE_H
#define SN_ENGINE_PROBE_H

#include "engine/probe_file.h"

/* The kept one, or measures with a team of `threads` (0: all processors) and keeps it: peaks and profile, half a minute and some 400 MiB.
 * again: always measures. folder (may be NULL or ""): its disk is measured too, unless it was and `again` is false. *cached: nothing was
 * measured. */
sn_status sn_probe_get(int threads, bool again, const char *folder, sn_probe *out, bool *cached);

#endif
