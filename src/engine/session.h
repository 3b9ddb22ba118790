/* What every task needs once its job is planned: budget, arenas, weights. */
#ifndef SN_ENGINE_SESSION_H
#define SN_ENGINE_SESSION_H

#include "engine/job.h"
#include "engine/load.h"
#include "engine/model.h"

typedef struct sn_session {
    sn_model *model;
    sn_device device;
    sn_cluster cluster;
    sn_job *job;
    sn_plan *plan;
    sn_run *run;
    sn_run *const *runs; /* of all ranks in this process, rank 0's first; NULL: run alone */
    int n_runs;
    int rank;
    bool exports; /* writes a whole model at its end: see engine/reserved.c */
    uint64_t files; /* bytes of checkpoints and exports on disk */
} sn_session;

/* Bytes of the device's transient arena in which exporting a whole model makes its tiles; part of the plan of every session
 * that exports. */
enum { SN_STAGING_BYTES = 4 << 20 };

/* Device and mesh from the recipe (device, threads, thread_ranks). */
sn_status sn_session_machine(sn_session *s, const sn_options *recipe);

/* Bytes that no plan owns in a process that works with this model; exports: it writes a whole model at its end. See engine/reserved.c. */
uint64_t sn_reserved_bytes(const sn_model *m, bool exports);

/* The bytes that a rank may take under the recipe: `memory` (device=, or a bare number), else what the cgroup and the
 * machine have free, divided by the ranks. */
uint64_t sn_budget_bytes(const sn_options *recipe, int ranks);

/* Plans s->job. */
sn_status sn_session_plan(sn_session *s);

/* Refuses a plan that is over the recipe's budget, with the bytes missing and what is live at the peak. */
sn_status sn_session_check_budget(const sn_session *s, const sn_options *recipe);

/* Maps the arenas and loads the weights (and the adapter, when a folder is given). */
sn_status sn_session_open(sn_session *s, const sn_options *recipe, const char *adapter, sn_comm *comm);

void sn_session_close(sn_session *s); /* not the model */

/* A persistent value is held in pieces, in logical order: whole by rank 0, or in flat shards. Piece i of them, from logical
 * element *first on, is `bytes` of holder's value p; false after the last. */
bool sn_session_piece(const sn_session *s, sn_pid p, int i, int64_t *first, sn_run **holder, size_t *bytes);

/* All of a persistent value in a row: where it rests in memory, or put together in the transient arena, which may not run meanwhile
 * and holds one such value at a time. NULL: the device has no memory, or the disk cannot be read. */
const void *sn_session_whole(const sn_session *s, sn_pid p);

#endif
