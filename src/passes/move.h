/* The inside of the pass move, shared by move*.c. */
#ifndef SN_PASSES_MOVE_H
#define SN_PASSES_MOVE_H

#include "graph/op.h"
#include "passes/pass.h"

enum { SN_MOVE_RECENT = 16 };

/* A run of rows of an op that works on tiles: brought, and not yet worked on. */
typedef struct sn_tile {
    sn_nid node; /* SN_NONE: none */
    int64_t at, n;
    sn_vid brought[SN_MAX_IN]; /* by input: its rows on the device; SN_NONE: it is worked on where it rests */
} sn_tile;

typedef struct mover {
    sn_graph *g;
    const sn_cluster *cluster;
    sn_vid *stand_in; /* by value of the graph as it was: what it rests as, made once; SN_NONE: itself */
    size_t n_values;
    int64_t tile_bytes; /* of the largest operand of a tile */
    sn_tile pending;
    /* Copies made lately, for sharing. */
    struct {
        sn_vid from, to;
        int64_t slice_at, slice_n;
        sn_dtype form;
        int32_t layer;
        uint8_t phase;
        bool copied;
    } recent[SN_MOVE_RECENT];
    int next;
    sn_vid *arrived; /* by value: what was sent of it last; SN_NONE: nothing */
    size_t n_arrived;
} mover;

/* Appends op with this one input; the result has the name and split of what went in, and this class. */
sn_vid sn_moved(sn_graph *g, sn_opcode op, const sn_attrs *a, sn_use from, sn_class class_of);

/* Copies made lately: what this use has become for a node nearby, in this form (copied: brought from another tier); SN_NONE: nothing. */
void sn_remember(mover *m, const sn_use *from, sn_vid to, sn_dtype form, const sn_node *n, bool copied);
sn_vid sn_recall(const mover *m, const sn_use *from, sn_dtype form, const sn_node *n, bool copied);

/* Between splits (move_splits.c). SN_ERR_PLAN where the table has no way from what input i of a node is to what the node wants. */
sn_status sn_check_way(const sn_graph *g, const sn_node *n, int i);

/* What node id uses, as `at` so far, in this split; *at becomes that. A view stays one, in the node's own use. */
sn_status sn_move_split(mover *m, sn_nid id, sn_use *at, const sn_split *to);

/* Whether the use is this rank's shard of what it holds whole. */
bool sn_is_view(const sn_graph *g, const sn_use *use);

/* Behind node id, which has changed this rank's shard of a value that rests whole, its input i: everybody gets all shards. */
sn_status sn_gather_again(sn_graph *g, sn_nid id, int i);

/* Whether a value rests where the device cannot address it. */
bool sn_rests_away(const mover *m, sn_vid v);

/* The use of a value that rests away, on the device. */
sn_vid sn_bring(mover *m, sn_use from);

/* What was made on the device (or lies in the host tier, as an op that reads files leaves it), to where `into` rests: away. */
void sn_send(mover *m, sn_use from, sn_use into);

/* The size of tiles in this graph. */
void sn_choose_tiles(mover *m);

/* Whether this input of an op that works on tiles is cut with them. */
static inline bool sn_goes_by_tile(const sn_op *op, int i) { return (op->tile | op->flat_runs_in) >> i & 1; }

/* Whether the op works on tiles here: it changes something that rests away, and may, and its operands have rows (are in no shards). */
bool sn_takes_tiles(const mover *m, const sn_node *n);

/* Stamps the op in tiles, each brought while the one before is worked on: a tile is left pending for the next call or for
 * sn_finish_tiles, which everything but tiles has to call first. */
sn_status sn_move_tiles(mover *m, sn_nid id);
sn_status sn_finish_tiles(mover *m);

#endif
