/* The inside of the pass pipeline_parallel, shared by its files. */
#ifndef SN_PASSES_PIPELINE_PARALLEL_H
#define SN_PASSES_PIPELINE_PARALLEL_H

#include "passes/pass.h"

/* The blocks of a model are cut into stages * turns runs, the chunks; stage s has chunks s, s + stages, ... */
typedef struct sn_pipeline {
    int stages, turns;
    int64_t layers, micro_batches;
    bool gpipe; /* all forward parts before the first backward one; else one forward, one backward */
} sn_pipeline;

static inline int sn_pipeline_chunks(const sn_pipeline *p) { return p->stages * p->turns; }

/* The forward or backward part of one micro-batch in one chunk. */
typedef struct sn_pipeline_unit {
    int32_t micro, chunk;
    bool backward;
} sn_pipeline_unit;

/* All 2 * micro_batches * chunks units in an order that respects what each needs and, within each stage, is the stage's schedule. */
sn_status sn_pipeline_schedule(const sn_pipeline *p, sn_pipeline_unit *units);

/* Makes one program of those of the first micro-batch, the later ones and the update, in that order. Nothing where there is one only. */
sn_status sn_pipeline_join(sn_job *job, const sn_pipeline *p);

/* The chunk of a block. */
int sn_pipeline_chunk(const sn_pipeline *p, int32_t layer);

#endif
