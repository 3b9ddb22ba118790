/* Filling the persistent values of an opened run: from model files, or by initialisation. */
#ifndef SN_ENGINE_LOAD_H
#define SN_ENGINE_LOAD_H

#include "engine/model.h"
#include "run/run.h"

/* Bytes of the transient arena that loading and saving use for tiles; part of every plan that loads. */
enum { SN_STAGING_BYTES = 4 << 20 };

/* Weights and masters from the model's files (or initialised, where a value has no file), moments and gradients zero. */
sn_status sn_load_weights(sn_run *run, const sn_job *job, const sn_model *model, uint64_t seed);

#endif
