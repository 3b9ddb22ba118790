/* The processes of a job: one data-parallel rank each. */
#ifndef SN_ENGINE_WORLD_H
#define SN_ENGINE_WORLD_H

#include <stdbool.h>

#include "io/options.h"
#include "run/launch.h"

typedef struct sn_world {
    int rank, size;    /* of processes; alone: 0 of 1 */
    int local;         /* ranks on this machine */
    int nodes;         /* machines, if all have as many ranks, which follow each other; else 0 */
    int sharing;       /* those of them that may run on a processor of this one's */
    sn_comm *comm;     /* NULL: alone */
    uint64_t reserved; /* bytes that the comm's library keeps, as measured; the largest of all ranks */
} sn_world;

/* Joins the ranks when this process was launched as one of several (run/launch.h). Collective. */
sn_status sn_world_open(const sn_options *recipe, sn_world *out);

/* failed: this rank gives up, and the others are not waited for. */
void sn_world_close(sn_world *w, bool failed);

/* The rest is collective over the processes and does nothing, or copies, for one alone. A comm cannot fail (program/comm.h). */

/* all[r * bytes ..] = rank r's `mine`. */
void sn_world_gather(const sn_world *w, const void *mine, size_t bytes, void *all);

/* Rank 0's bytes on every rank. */
void sn_world_share(const sn_world *w, void *data, size_t bytes);

/* SN_OK when every rank says so; else this rank's own error, or one that names a rank that has failed. */
sn_status sn_world_agree(const sn_world *w, sn_status mine);

/* SN_OK when all ranks have the same options, those aside that may differ by rank; else SN_ERR_USAGE naming a rank, the option, and what
 * it is here. */
sn_status sn_world_compare(const sn_world *w, const sn_options *recipe);

/* The same number on every rank: the smallest. */
uint64_t sn_world_least(const sn_world *w, uint64_t mine);

/* Makes a folder that all ranks have to see; SN_ERR_FILE naming a rank that does not. */
sn_status sn_world_make_dirs(const sn_world *w, const char *path);

#endif
