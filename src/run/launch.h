/* How this process was launched: as one of several ranks, or alone.
 *
 * Looked for in this order; the first that says a size above 1 counts:
 *   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE                          (torchrun's names)
 *   OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE                   (Open MPI's mpirun)
 *   PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS                    (MPICH, Intel MPI)
 *   SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_STEP_TASKS_PER_NODE  (srun; a batch script itself has no step size) */
#ifndef SN_RUN_LAUNCH_H
#define SN_RUN_LAUNCH_H

#include "program/comm.h"
#include "base/status.h"

typedef struct sn_launch {
    int rank, size;             /* of processes; size 1: alone */
    int local_rank, local_size; /* on this machine, as far as the launcher says; else all are taken to be here */
    const char *from;           /* the variable that said so; NULL: alone */
} sn_launch;

/* SN_ERR_USAGE naming the variable where one is malformed or says a rank that cannot be. */
sn_status sn_launch_find(sn_launch *out);

/* Joins the other processes over MPI. Collective. The module snug_mpi.so, built where MPI was found, is loaded for this from
 * beside the program (or the library), from ../lib/snug, or as SNUG_MPI_MODULE says; SN_ERR_UNSUPPORTED where there is none,
 * SN_ERR_USAGE where MPI sees other ranks than the launch. (*out)->close ends it. */
sn_status sn_comm_mpi_open(const sn_launch *launch, sn_comm **out);

/* What the module exports as snug_mpi_open. NULL, or why it cannot: static text, or `text`. */
typedef const char *sn_mpi_open_fn(int rank, int size, sn_comm **out, char text[256]);

#endif
