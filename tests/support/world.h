/* A tiny model trained by ranks that are threads, each with its plan and its run: what the tests of parallelism compare. */
#ifndef SN_TESTS_WORLD_H
#define SN_TESTS_WORLD_H

#include "engine/session.h"
#include "support/tiny.h"

enum { WORLD_MOST = 8 };

/* The rows of an optimizer step, over all ranks and micro-batches. */
typedef struct world_rows {
    int64_t rows, length;
    bool evaluate;                                              /* a program for evaluation too */
    bool processes;                                             /* planned as if ranks were processes */
    int32_t (*label)(int64_t at, int step, int64_t vocabulary); /* of token `at` of the step's; NULL: each has one */
} world_rows;

typedef struct world {
    world_rows rows;
    sn_options *recipe;
    sn_session s;
    sn_plan *plans[WORLD_MOST];
    sn_run *runs[WORLD_MOST];
    sn_comm *comms;
    sn_team *team;
    int ranks, program;
    int64_t accumulation, vocabulary;
} world;

/* Plans every rank. */
void world_plan(world *w, const world_rows *rows, const sn_model_config *model, const char *device, int ranks, const char *options);

/* Plans, and opens a run for every rank, with weights drawn from seed 7. */
void world_open(world *w, const world_rows *rows, const sn_model_config *model, const char *device, int ranks, const char *options);
void world_close(world *w);

/* Runs a program on all ranks. */
void world_run(world *w, int program);

/* Fills micro-batch m of a step, the k-th of program's, on all ranks: those of one data-parallel index see the same rows. */
void world_fill(world *w, int program, int step, int64_t m, int k, float scale);

enum { WORLD_STEPS = 5 };

typedef struct world_outcome {
    double loss[WORLD_STEPS];
    float norm[WORLD_STEPS];
    char weights[65]; /* SHA-256 of weights and states, in logical order of their pieces */
} world_outcome;

/* Trains WORLD_STEPS steps at a rate of 1e-2. options: for messages. */
void world_train(world *w, const char *options, world_outcome *out);

/* The gradient norm that a program has reported, which is the same on all ranks. */
float world_norm(const world *w, int program, const char *options);

#endif
