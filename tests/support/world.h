/* A tiny model trained by ranks that are threads, each with its plan and its run: what the tests of parallelism compare. */
#ifndef SN_TESTS_WORLD_H
#define SN_TESTS_WORLD_H

#include "engine/session.h"
#include "support/tiny.h"

enum { WORLD_MOST = 16, WORLD_STEPS = 5 };

/* The rows of an optimizer step, over all ranks and micro-batches. */
typedef struct world_rows {
    int64_t rows, length;
    int steps;                                                  /* of world_train, at most WORLD_STEPS; 0: all */
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

/* What some steps gave. */
typedef struct world_outcome {
    int steps;
    double loss[WORLD_STEPS]; /* of a label */
    float norm[WORLD_STEPS];
    double evaluated; /* the loss afterwards, where there is a program for it */
    float *weights;   /* all that is trained (the masters, where there are), whole, one after the other; sn_free */
    float *moments;   /* likewise their states, as far as they are floating-point */
    size_t n_weights, n_moments;
} world_outcome;

/* Plans every rank. */
void world_plan(world *w, const world_rows *rows, const sn_model_config *model, const char *device, int ranks, const char *options);

/* Plans every rank by itself: each is like the one that is planned for its class, none is larger than what sn_plan_cluster finds. How many
 * classes there are. */
size_t world_classes(const sn_model_config *config, int ranks, const char *options);

/* Plans, and opens a run for every rank, with weights drawn from seed 7. */
void world_open(world *w, const world_rows *rows, const sn_model_config *model, const char *device, int ranks, const char *options);
void world_close(world *w);

/* Runs a program on all ranks. */
void world_run(world *w, int program);

/* Fills micro-batch m of a step, the k-th of program's, on all ranks: each gets of it what it holds. */
void world_fill(world *w, int program, int step, int64_t m, int k, float scale);

/* The gradient norm that a program has reported, which is the same on all ranks. */
float world_norm(const world *w, int program, const char *options);

/* Steps of an opened world at this learning rate: losses and norms. world_keep: the rest, for world_forget. Of a value in parts
 * each element has to be somewhere, and ranks that hold the same have to agree. */
void world_train(world *w, double rate, const char *options, world_outcome *out);
void world_keep(world *w, world_outcome *out);
void world_forget(world_outcome *out);

/* Fails unless losses, norms and weights are within a tolerance, relative to 1 + |x| for weights and moments; 0: the same bits. */
void world_compare(const world_outcome *got, const world_outcome *wanted, double tolerance, const char *options);

#endif
