/* What every task needs once its job is planned: budget, arenas, weights. */
#ifndef SN_ENGINE_SESSION_H
#define SN_ENGINE_SESSION_H

#include "engine/job.h"
#include "engine/load.h"
#include "engine/model.h"
#include "engine/world.h"
#include "plan/forecast.h"

typedef struct sn_session {
    sn_model *model;
    sn_device device;
    sn_cluster cluster;
    sn_job *job;
    sn_plan *plan;
    sn_bill most; /* of the rank that needs most: the plan's, unless ranks differ in what they hold */
    sn_run *run;
    sn_run *const *runs; /* of all ranks in this process, the lowest first; NULL: run alone */
    int n_runs;
    int ranks; /* of the mesh */
    int rank;
    const sn_world *world;             /* the processes of which this is one; NULL: it is alone */
    const struct sn_st *saved;         /* where ranks are processes: the checkpoint from which a value in shards is read whole; else NULL */
    bool exports;                      /* writes a whole model at its end: see engine/reserved.c */
    uint64_t files;                    /* bytes of checkpoints and exports on disk */
    const sn_accelerator *accelerator; /* that the recipe names; NULL: this machine */
    bool whole_cluster;                /* planning takes all ranks */
    int nodes;                         /* over which the ranks are spread, as many on each and in order; 0: they are not */
} sn_session;

/* Bytes of the device's transient arena in which exporting a whole model makes its tiles; part of the plan of every session
 * that exports. */
enum { SN_STAGING_BYTES = 4 << 20 };

/* Device and number of ranks from the recipe (device, threads, thread_ranks); the mesh is that of one rank. */
sn_status sn_session_machine(sn_session *s, const sn_options *recipe);

/* After sn_session_machine: nodes, and of a job that is only planned ranks and device_shape. */
sn_status sn_session_cluster(sn_session *s, const sn_options *recipe);

/* SN_ERR_USAGE where the recipe has an option of planning alone. */
sn_status sn_session_refuse_planned(const sn_options *recipe);

/* Makes the session, after sn_session_machine, one of a rank among processes; world NULL or of one: nothing. */
sn_status sn_session_join(sn_session *s, const sn_options *recipe, const sn_world *world);

/* After these: lays the ranks out as the recipe's passes want them. */
sn_status sn_session_mesh(sn_session *s, const sn_options *recipe);

/* Bytes that no plan owns in a process that works with this model; exports: it writes a whole model at its end. See engine/reserved.c. */
uint64_t sn_reserved_bytes(const sn_model *m, bool exports);

/* Plans s->job: rank s->rank, or with whole_cluster all of them (plan/cluster.h): s->plan is then the largest. */
sn_status sn_session_plan(sn_session *s);
sn_status sn_session_plan_within(sn_session *s, uint64_t most, const sn_rates *rates); /* most, rates: see sn_plan_request */

/* Whether some ranks hold values that others do not, as stages of a pipeline do. */
bool sn_session_ranks_differ(const sn_session *s);

/* Maps the arenas and loads the weights (and the adapter, when a folder is given). */
sn_status sn_session_open(sn_session *s, const sn_options *recipe, const char *adapter, sn_comm *comm);

void sn_session_close(sn_session *s); /* not the model */

/* A persistent value is held in pieces: whole, or in shards, of the lowest ranks that have each. Piece i of those in this process is all
 * `bytes` of holder's value p; false after the last. */
bool sn_session_piece(const sn_session *s, sn_pid p, int i, sn_run **holder, size_t *bytes);

/* A piece lies in the whole in parts of it: bytes from `here` on of what the holder has are those from `whole` on. */
typedef struct sn_extent {
    uint64_t here, whole, bytes;
} sn_extent;

/* The next part of a holder's piece; *part is zeroed before the first. False after the last. */
bool sn_session_part(const sn_session *s, const sn_run *holder, sn_pid p, sn_extent *part);

/* Whether the pieces, in the order of ranks, are the whole in a row. */
bool sn_session_in_order(const sn_session *s, sn_pid p);

/* All of a persistent value in a row: where it rests in memory, or put together in the transient arena, which may not run meanwhile and
 * holds one such value at a time. *data NULL: the device has no memory. */
sn_status sn_session_whole(const sn_session *s, sn_pid p, const void **data);

#endif
