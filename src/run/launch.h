/* How this process was launched: as one of several ranks, or alone.
 *
 * Looked for in this order; the first that says a size above 1 counts:
 *   RANK, WORLD_SIZE                             torchrun's names
 *   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE   Open MPI's mpirun
 *   PMI_RANK, PMI_SIZE                           MPICH, Intel MPI
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS           srun (SLURM_NTASKS is set in a batch script too, which is one process)
 * Where MASTER_ADDR and MASTER_PORT are set, the ranks join by TCP (run/tcp/), else by MPI. Under torchrun, whose own agent listens on
 * MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True), the next port is used. LOCAL_RANK and LOCAL_WORLD_SIZE are checked and not needed: which
 * ranks share a machine is found out by asking them (engine/world.c). */
#ifndef SN_RUN_LAUNCH_H
#define SN_RUN_LAUNCH_H

#include "base/status.h"
#include "program/comm.h"

typedef struct sn_launch {
    int rank, size;      /* of processes; size 1: alone */
    const char *from;    /* the variable that said so; NULL: alone */
    const char *address; /* of rank 0, as MASTER_ADDR says; NULL: joined by MPI */
    int port;
} sn_launch;

/* SN_ERR_USAGE naming the variable where one is malformed or says a rank that cannot be. */
sn_status sn_launch_find(sn_launch *out);

/* Joins the other processes by TCP at launch->address. Collective; waits `patience` seconds for the others (0: for ever), then
 * SN_ERR_NETWORK names those that have not come. (*out)->close ends it. */
sn_status sn_comm_tcp_open(const sn_launch *launch, double patience, sn_comm **out);

/* Joins the other processes over MPI. Collective. The module snug_mpi.so, built where MPI was found, is loaded for this from
 * beside the program (or the library), from ../lib/snug, or as SNUG_MPI_MODULE says; SN_ERR_UNSUPPORTED where there is none,
 * SN_ERR_USAGE where MPI sees other ranks than the launch. (*out)->close ends it;
 * MPI begins once in a process, so there is no second time. */
sn_status sn_comm_mpi_open(const sn_launch *launch, sn_comm **out);

/* What the module exports as snug_mpi_open. NULL, or why it cannot: static text, or `text`. */
typedef const char *sn_mpi_open_fn(int rank, int size, sn_comm **out, char text[256]);

#endif
