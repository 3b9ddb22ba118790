/* The op interface: what the frame knows about an op. One table entry an op, defined in its folder under ops/. */
#ifndef SN_GRAPH_OP_H
#define SN_GRAPH_OP_H

#include "graph/graph.h"
#include "program/kernel.h"

typedef struct sn_cost {
    double flops, bytes; /* arithmetic; bytes read and written */
} sn_cost;

typedef struct sn_op {
    const char *name;
    int min_in, max_in, n_out;
    uint32_t mutates;    /* bit i: input i is changed in place */
    uint32_t into;       /* bit i: that input, the last one, takes the place of output 0: written whole, never read */
    uint32_t tile;       /* bit i: input i has operand 0's shape and is worked on element by element, so that the op may be stamped in
                          * runs of rows of them; attribute `flat_first` then says where a run begins */
    uint32_t leaves_out; /* bit o: output o is not made in a call where it is absent (rank 0), whatever the attributes say */
    bool light;          /* few operations an element: to make its outputs again takes hardly longer than to read them */

    /* Names of the attribute slots, for explain; NULL for unused ones. */
    const char *int_attrs[SN_ATTR_INTS], *float_attrs[SN_ATTR_FLOATS];

    /* Sets shape and dtype of every output from the inputs and attributes; refuses what does not fit together,
     * naming wanted and found. An output that is not wanted under these attributes gets rank 0. */
    sn_status (*shape)(sn_call *c);

    /* Index letters of inputs and outputs, as in "tk,nk,n->tn": one letter a dimension.
     * lower case: the axis may be split (outputs with the letter are split alike); a lower-case letter that stands in
     *   inputs only is summed over, so outputs become partial;
     * upper case: the axis must be whole.
     * With attributes because e.g. a transposed operand has its letters swapped. NULL: everything must be whole. */
    const char *(*axes)(const sn_call *c);

    /* Whether some kernel takes input i in this form as it is (a quantised weight, say). NULL: only as the shape rule wants. */
    bool (*accepts)(const sn_call *c, int input, sn_dtype form);

    /* Appends the gradient. dout[i] is the gradient of output i (SN_NONE: not needed or zero). Sets din[i] for each
     * input that want[i] asks for; din[] starts as SN_NONE. NULL: the op has no gradient. */
    sn_status (*grad)(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din);

    /* NULL: zero flops, every argument once. */
    sn_cost (*cost)(const sn_call *c);

    /* alias[o]: bits of the inputs whose bytes output o may take when that input dies here. The kernel must then work
     * in place, element by element. */
    uint32_t alias[SN_MAX_OUT];

    /* Not 0: output 0 has one element for each run of so many elements of the flattened input 0, so that a flat shard of whole
     * runs gives a flat shard of them. (Elementwise ops, whose operands have the same letters, take flat shards anyway.) */
    int flat_run;

    /* With flat_run: bit i: input i too has one element for each such run of the operands that go element by element. In tiles and
     * shards, which then are whole runs, it goes along. */
    uint32_t flat_runs_in;

    /* Not 0: 1 + the integer attribute that takes the logical index of the first element when operands are flat shards; of a
     * run of rows the graph says it already. */
    int flat_first;

    /* With attr: integer attribute attr - 1 takes where an operand begins along a dimension, in logical coordinates. operand SN_MAX_IN:
     * output 0, or the last input where the op writes into that one instead. */
    struct sn_begins {
        uint8_t attr, operand, dim;
        bool in_input; /* in what the rank is given of the program's inputs instead */
    } begins[2];

    /* bit i: with input i a summand on each rank (and the others of these bits too), outputs, or what the op adds to, are summands. */
    uint32_t linear;

    /* bit i: input i is added to a sum: where the result is a summand on each rank, the first alone is given it, the others none. */
    uint32_t added_once;

    bool pairs; /* its cost counts pairs of tokens of one sequence; rows of a micro-batch do not see each other, and make it cheaper */

    bool thirds; /* one operand is three of another beside each other */

    bool is_loss; /* gradients start at output 0, the losses of tokens */

    /* Not 0: the op communicates, over the mesh axis that integer attribute comm_axis - 1 says. */
    int comm_axis;

    /* Not 0: one rank of that axis sends to another one: integer attributes comm_from - 1 and comm_from are their indices on it. */
    int comm_from;

    /* Not 0: with this optional input the op adds its result into it instead of giving an output. */
    int adds_into;

    /* Kernels by preference, best first, a NULL-ended list of tables, each ended by an entry without a name. */
    const sn_kernel *kernels[10];
} sn_op;

extern const sn_op *const sn_ops[SN_OP_COUNT];

/* The best kernel of this device for these forms and shapes under these cpu features (or sm version); NULL: none. */
const sn_kernel *sn_kernel_find(const sn_op *op, sn_device_kind device, uint32_t features, const sn_call *c);

#endif
