/* Training in turns (graph/graph.h): what a turn begins with. */
#ifndef SN_ENGINE_TURNS_H
#define SN_ENGINE_TURNS_H

#include "run/run.h"

/* Before update number `update` (from 0) of this run: its turn's instructions run from now on, and with the first update of a turn its
 * states begin at zero and its masters as their weights. Fails when the disk arena cannot be read or written. Nothing to do where a job has
 * no turns. */
sn_status sn_take_turn(sn_run *run, const sn_job *job, int64_t update);

/* The turn whose gradients, states and masters hold something before update number `update`; -1: none, a turn is about to begin. */
int32_t sn_turn_in_progress(const sn_job *job, int64_t update);

#endif
