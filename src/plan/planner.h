/* The inside of planning a program, shared by plan.c and the files of its steps. */
#ifndef SN_PLAN_PLANNER_H
#define SN_PLAN_PLANNER_H

#include "graph/op.h"
#include "plan/plan.h"

/* One program at work. */
typedef struct planner {
    const sn_job *job;
    const sn_graph *g;
    const sn_plan_request *request;
    sn_plan *plan;
    sn_planned *out;
    uint32_t *first, *last; /* by value: instructions that define it and use it last */
    uint32_t *root;         /* by value: the value whose bytes it shares */
    uint64_t *bytes, *offset;
    sn_turn_span *node_turns, *turns, *held; /* by node; by value: in which it is touched, in which its bytes are held */
    bool *staged;                            /* by root: whole blocks of the disk are read or written there */
    sn_shape *shape;                         /* local */
    bool *here;                              /* by value: this rank has it */
    uint32_t dealt;                          /* bit a: inputs of the program are in shards on mesh axis a */
    sn_nid *order;                           /* of execution: the nodes that this rank runs */
    size_t n_order;
} planner;

static inline sn_status sn_plan_no_memory(void) { return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a plan"); }

static inline sn_tier sn_plan_tier_of(const sn_value *v) {
    if (v->input || v->output) return SN_TIER_HOST;
    return v->has_rest || v->persistent != SN_NONE ? v->rest.tier : SN_TIER_DEVICE;
}

static inline bool sn_plan_is_transient(const planner *p, const sn_value *v) {
    return v->persistent == SN_NONE ? !v->input && !v->output : p->plan->persistent[v->persistent].within;
}

static inline const sn_split *sn_plan_split_of(const sn_value *v) { return v->persistent != SN_NONE ? &v->rest.split : &v->result; }

static inline bool sn_plan_is_held(const planner *p, sn_vid v) { return v != SN_NONE && p->here[v]; }

/* ---- local.c ---- */

/* What of n elements in such units this rank holds on an axis of the mesh; *at: of those, where it begins. */
int64_t sn_share_of(int64_t n, const sn_split_axis *x, int size, int index, int64_t *at);

/* ---- uses.c: what a node is given at this rank ---- */

/* Whether a use is a rank's shard, flat or of rows, of a value that it holds whole. */
bool sn_plan_is_view(const sn_value *v, const sn_use *u);

/* The shape of a use at this rank, and the byte where it begins in its value. */
sn_shape sn_plan_use_of(const planner *p, const sn_use *u, uint64_t *begin);

/* Whether the node reads input i here. What one rank sends another, that one does not read, though it may have it too. */
bool sn_plan_is_read(const planner *p, const sn_node *n, int i);

/* The call of a node with the shapes of this rank. */
void sn_plan_local_call(const planner *p, const sn_node *n, sn_call *c);

/* Refuses what a node cannot be given here: what nothing makes, slices of rows that are spread over ranks, views that are no runs of bytes.
 */
sn_status sn_plan_check_uses(const planner *p, const sn_node *n);

/* Attributes that say where a rank's part of an operand begins: first elements of shards, and what the op's `begins` ask for. */
void sn_plan_set_begins(const planner *p, const sn_node *n, sn_attrs *attrs);

/* ---- turns.c ---- */

/* In which turns nodes run and values are touched, by sn_nid and sn_vid. */
sn_status sn_plan_turns(const sn_graph *g, sn_turn_span *nodes, sn_turn_span *values);

/* ---- persistent.c ---- */

/* The host arena opens with the inputs of all programs, once for each slot, then the outputs; persistent values follow. */
sn_status sn_plan_place_io(sn_plan *plan, const sn_job *job);
sn_status sn_plan_place_persistent(sn_plan *plan, const sn_job *job);

/* ---- transients.c ---- */

/* Places the blocks of each arena: values, by root, and scratch. */
sn_status sn_plan_place_transients(planner *p);

/* Bytes alive at each instruction of a tier: live[0 .. count). */
void sn_plan_measure_live(const planner *p, sn_tier tier, uint64_t *live);

#endif
