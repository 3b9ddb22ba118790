/* A team of threads that computes one kernel at a time.
 *
 * The calling thread is member 0; the others wait between calls, spinning shortly and then on a futex.
 * A team is used by one thread at a time. */
#ifndef SN_BASE_TEAM_H
#define SN_BASE_TEAM_H

#include <stdint.h>

#include "base/status.h"

typedef struct sn_team sn_team;

/* task runs from 0 to n_tasks - 1, each exactly once, on any member; `member` is 0 .. sn_team_size - 1. */
typedef void (*sn_task_fn)(void *context, int64_t task, int member);

/* Starts n_threads - 1 threads (n_threads >= 1). `cpus` may be NULL, or name the processor of each member. */
sn_status sn_team_open(int n_threads, const int *cpus, sn_team **out);
void sn_team_close(sn_team *team);

int sn_team_size(const sn_team *team); /* 1 for NULL */

/* Runs all tasks and returns when the last has ended. team may be NULL: the caller runs them all. */
void sn_team_run(sn_team *team, int64_t n_tasks, sn_task_fn fn, void *context);

/* The processors this process may use (affinity mask and cgroup quota), at least 1. */
int sn_cpu_count(void);

#endif
