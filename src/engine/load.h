/* Filling the persistent values of an opened run: from model files, or by initialisation. */
#ifndef SN_ENGINE_LOAD_H
#define SN_ENGINE_LOAD_H

#include "engine/model.h"
#include "run/run.h"

/* Runs the program "load", if the job has one, and initialises the weights and masters that have no file; moments and
 * gradients are zero. */
sn_status sn_load_weights(sn_run *run, const sn_job *job, uint64_t seed);

#endif
