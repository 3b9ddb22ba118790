/* Running a plan: arenas mapped once, programs walked instruction by instruction.
 *
 * run/ sees plans and programs, never graphs. On the CPU the compute queue is the calling thread with its team; copy,
 * comm and io are one thread each, in order, started only when a program uses them. */
#ifndef SN_RUN_RUN_H
#define SN_RUN_RUN_H

#include "plan/plan.h"
#include "program/comm.h"

/* A device: how its arenas come to be and what an instruction becomes. */
typedef struct sn_device {
    sn_device_shape shape;
    /* Maps and touches `bytes` with the help of a team (NULL: the caller alone). NULL: no memory behind it (null device). */
    sn_status (*map)(uint64_t bytes, sn_team *team, void **base);
    void (*unmap)(void *base, uint64_t bytes);
} sn_device;

extern const sn_device sn_device_cpu, sn_device_cpu_split, sn_device_null;

/* The device of this name with this processor's features and a team of `threads`; SN_ERR_USAGE for an unknown name. */
sn_status sn_device_find(const char *name, int threads, sn_device *out);

typedef struct sn_run sn_run;

/* Opens a plan: checks that every kernel exists in this build, opens its files, starts the team, maps and touches the arenas. The plan
 * and the comm (NULL: alone) must outlive the run. Nothing is allocated after this. */
sn_status sn_run_open(const sn_plan *plan, const sn_device *device, sn_comm *comm, sn_run **out);
void sn_run_close(sn_run *run);

/* Runs program `index` with the inputs of `slot`. Collective over the comm when the program communicates.
 * Fails when a file of an instruction `read` cannot be read or ends early, or the disk arena cannot be read or written; the message names
 * the program, the instruction, the file and the place in it. The program has then run to its end without executing anything after the
 * failure but collectives, so that no rank hangs; what it should have written is unspecified. */
sn_status sn_run_program(sn_run *run, int index, int slot);

/* Of a job that trains in turns: programs run for this turn from now on. Turn 0 is the first, and the only one of other jobs. */
void sn_run_take_turn(sn_run *run, int turn);

/* Runs one instruction on the calling thread, for the tests. */
void sn_run_instruction(sn_run *run, int index, uint32_t instruction, int slot);

/* n bytes of a persistent value from byte `at` on, wherever it rests. */
sn_status sn_run_read(const sn_run *run, sn_pid p, uint64_t at, void *data, size_t n);
sn_status sn_run_write(sn_run *run, sn_pid p, uint64_t at, const void *data, size_t n);

/* Addresses. NULL when there is no such name, no memory behind the device, or the value rests on disk or not on this rank. */
void *sn_run_io(const sn_run *run, int index, const char *name, int slot, const sn_io_slot **info);
void *sn_run_persistent(const sn_run *run, sn_pid p);
const sn_placed *sn_run_placed(const sn_run *run, sn_pid p);
void *sn_run_transient(const sn_run *run, uint64_t *bytes); /* the device arena beyond its persistent part */
void *sn_run_arena(const sn_run *run, sn_tier tier);
/* Bytes that the programs run so far have sent to other ranks. */
uint64_t sn_run_sent(const sn_run *run);

sn_team *sn_run_team(const sn_run *run);

/* Seconds that each instruction of a program took in the last run, when profiling is on (NULL otherwise). */
sn_status sn_run_profile(sn_run *run, bool on);
const double *sn_run_seconds(const sn_run *run, int index);

/* Ranks as threads of one process: n comms over one shared state. Closing any closes its share. */
sn_status sn_comm_threads_new(int n, sn_comm **comms);
void sn_comm_threads_free(sn_comm *comms);

#endif
