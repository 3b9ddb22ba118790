/* What the update rules share: one file a rule, and a table of them in optimizer.c. */
#ifndef SN_PASSES_OPTIMIZER_H
#define SN_PASSES_OPTIMIZER_H

#include "passes/pass.h"

typedef struct sn_update {
    sn_graph *g;
    sn_vid hyper, clip;
    const sn_options *recipe;
    sn_dtype moments; /* the option moment_dtype */
} sn_update;

/* One parameter: w is its value or its f32 master's; then w16 is the parameter's, else SN_NONE. */
typedef struct sn_updated {
    sn_pid parameter, master;
    sn_vid w, gradient, w16;
    int index; /* for the random key */
    double decay;
    const char *name;
} sn_updated;

/* A rule appends what updates one parameter, and adds its states. Its status is g's or its own. */
typedef sn_status (*sn_update_rule)(const sn_update *u, const sn_updated *x);

sn_status sn_update_adamw(const sn_update *u, const sn_updated *x);
sn_status sn_update_adamw_8bit(const sn_update *u, const sn_updated *x);
sn_status sn_update_adafactor(const sn_update *u, const sn_updated *x);
sn_status sn_update_lion(const sn_update *u, const sn_updated *x);
sn_status sn_update_galore(const sn_update *u, const sn_updated *x);
sn_status sn_update_muon(const sn_update *u, const sn_updated *x);
sn_status sn_update_sgd(const sn_update *u, const sn_updated *x);

/* Adds the state PARAMETER.suffix: of the parameter's shape and axes, or of another shape. SN_NONE with the error set. */
sn_pid sn_update_state(const sn_update *u, const sn_updated *x, const char *suffix, sn_dtype form);
sn_pid sn_update_state_of(const sn_update *u, const sn_updated *x, const char *suffix, sn_dtype form, sn_shape shape);

/* The same with one element for each run of so many of the flattened parameter; only where the parameter's shards are whole runs. */
sn_pid sn_update_state_runs(const sn_update *u, const sn_updated *x, const char *suffix, sn_dtype form, int32_t run);
bool sn_update_has_runs(const sn_update *u, const sn_updated *x, int32_t run);

/* For rules that need whole matrices: what they change of this parameter never rests in shards. */
void sn_update_needs_whole(const sn_update *u, const sn_updated *x, int n_states, const sn_pid *states);

/* Appends the op: hyper, clip and w16 follow the n inputs (w, gradient, states; SN_NONE where absent). */
sn_status sn_update_append(const sn_update *u, const sn_updated *x, sn_opcode op, const sn_attrs *a, int n, const sn_vid *in);

#endif
