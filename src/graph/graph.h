/* The graph: values and nodes by id.
 *
 * A job is a set of programs over one table of persistent values (weights, gradients, optimizer states, KV cache):
 * each program is a graph of its own, and a graph value either refers to an entry of that table or lives inside one
 * run of the program. Graphs hold logical shapes and know no ranks; plan/ alone makes local ones.
 *
 * Passes append nodes and rewire uses; the order of `order` is the order of execution. */
#ifndef SN_GRAPH_GRAPH_H
#define SN_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "graph/split.h"
#include "program/attrs.h"
#include "program/files.h"
#include "program/program.h"
#include "tensor/shape.h"

/* One entry an op, in graph/ops.def. */
typedef enum sn_opcode {
#define SN_OP(id) SN_OP_##id,
#include "graph/ops.def"
#undef SN_OP
    SN_OP_COUNT
} sn_opcode;

typedef uint32_t sn_vid; /* a value of a graph */
typedef uint32_t sn_nid; /* a node of a graph */
typedef uint32_t sn_pid; /* a persistent value of a job */
#define SN_NONE UINT32_MAX

/* What an axis of a parameter means. Split passes read these tags, never names. */
typedef enum sn_axis {
    SN_AXIS_NONE,
    SN_AXIS_EMBED,
    SN_AXIS_HEADS,
    SN_AXIS_KV_HEADS,
    SN_AXIS_MLP,
    SN_AXIS_VOCAB,
    SN_AXIS_EXPERT,
    SN_AXIS_RANK
} sn_axis;

/* Where a value waits between its uses. */
typedef struct sn_home {
    sn_tier tier;
    sn_split split;
    sn_dtype form;
} sn_home;

/* Where a persistent value's first contents come from; engine/ fills it, the pass `load` and engine/ read it. */
typedef struct sn_source {
    sn_dtype form;     /* the form it has in the file */
    int32_t file;      /* index in the job's files; -1: no file */
    uint64_t offset;   /* of its first byte in that file */
    int32_t row_heads; /* > 0: the file's rows are permuted as llama.cpp permutes q and k, with this many heads */
    bool transposed;   /* the file holds [out, in] where the value is [in, out] */
    int32_t init;      /* without a file: sn_init */
    float scale;       /* of SN_INIT_NORMAL (standard deviation) and SN_INIT_UNIFORM (bound); the value of SN_INIT_CONST */
} sn_source;
typedef enum sn_init { SN_INIT_ZERO, SN_INIT_CONST, SN_INIT_NORMAL, SN_INIT_UNIFORM } sn_init;

/* The part of an adapter that a value is: what is added to its weight's product is scale * up (down x). */
typedef enum sn_adapter_part { SN_ADAPTER_DOWN /* [rank, in] */, SN_ADAPTER_UP /* [out, rank] */ } sn_adapter_part;

typedef struct sn_persistent {
    const char *name; /* "model.layers.0.self_attn.q_proj.weight" */
    sn_shape shape;   /* logical */
    sn_class class_of;
    sn_home rest;              /* rest.form is the dtype of its bytes */
    uint8_t axes[SN_MAX_DIMS]; /* sn_axis */
    bool trainable;
    bool decays;   /* weight decay applies (matrices; not norms and biases) */
    int32_t layer; /* block number; -1: outside the blocks */
    sn_source source;
    sn_pid parent;     /* of a gradient, state or master: its weight; SN_NONE otherwise */
    int32_t state_run; /* of a state: not 0: one element for each run of so many elements of the flattened parent (a block's scale) */
    int32_t turn;      /* of a weight: the turn in which it is trained; -1: in every (see sn_turns) */
    bool rests_whole;  /* what changes it needs all of it: it never rests in shards */
    sn_pid adapter_of; /* of a weight that an adapter adds beside another: that one; SN_NONE: it is the model's own */
    sn_adapter_part adapter_part; /* these two: of a weight with adapter_of */
    float adapter_scale;
} sn_persistent;

typedef struct sn_value {
    const char *name; /* may be NULL */
    sn_shape shape;   /* logical */
    sn_dtype dtype;   /* form of the result */
    sn_class class_of;
    sn_split result;     /* split of the result, inferred from the ops */
    sn_home rest;        /* for values that cross from forward to backward; default: as the result, on the device */
    bool has_rest;       /* a place pass set it */
    uint8_t rests_split; /* bit a: a split pass set how it rests on mesh axis a: rest.split, to which it is moved once when it is made */
    int32_t run;         /* not 0: one element for each run of so many elements that a rank holds of the value runs_of */
    sn_vid runs_of;
    sn_pid persistent; /* SN_NONE: transient */
    bool input;        /* a named input of the program: rests in the host tier, filled by the engine */
    bool output;       /* a named output of the program: rests in the host tier, read by the engine */
    sn_nid producer;   /* SN_NONE for inputs and persistent values */
} sn_value;

/* An edge into a node: which value, and the form, split and part in which the op wants it. A slice is a run of rows of the
 * value's first axis (of a vector: elements, in whole blocks of its form); the op sees a value of that many rows. The use of
 * an input that the op mutates has slices too: that is how a program writes a part of a persistent value. */
typedef struct sn_use {
    sn_vid value;   /* SN_NONE: absent optional input */
    uint8_t form;   /* sn_dtype; SN_DTYPE_COUNT: as it is */
    uint8_t pinned; /* bit a: a pass says how it is split on mesh axis a; else that is inferred */
    bool has_split;
    sn_split split;            /* valid when has_split */
    int64_t slice_at, slice_n; /* slice_n 0: the whole */
} sn_use;
static inline sn_use sn_use_of(sn_vid value) { return (sn_use){.value = value, .form = SN_DTYPE_COUNT}; }
static inline sn_use sn_use_rows(sn_vid value, int64_t at, int64_t n) {
    return (sn_use){.value = value, .form = SN_DTYPE_COUNT, .slice_at = at, .slice_n = n};
}

/* What a node's forward part belongs to inside a block; its gradient nodes inherit it. */
typedef enum sn_part { SN_PART_NONE, SN_PART_ATTENTION, SN_PART_MLP } sn_part;

typedef enum sn_phase { SN_PHASE_FORWARD, SN_PHASE_BACKWARD, SN_PHASE_UPDATE } sn_phase;

typedef struct sn_node {
    sn_opcode op;
    uint8_t n_in, n_out;
    uint8_t phase; /* sn_phase */
    bool dead;     /* removed by a pass; keeps its id */
    uint8_t part;  /* sn_part */
    int32_t layer; /* block number; -1: outside the blocks */
    sn_use in[SN_MAX_IN];
    sn_vid out[SN_MAX_OUT];
    sn_attrs attrs;
    const char *name;
    const char *made_by; /* pass, or "model" */
    sn_nid origin;       /* the node it was cloned or derived from; SN_NONE */
    uint32_t site;       /* random site: a clone keeps its origin's */
    sn_nid after;        /* ordering edge: runs after this node; SN_NONE */
    sn_nid held;         /* the bytes of its inputs stay until this node is done, so that none waits for it to use them again; SN_NONE */
    sn_split where;      /* the ranks that run it: on each axis SN_WHOLE (all) or SN_AT */
    bool is_placed;      /* a pass said where; else it is inferred */
} sn_node;

struct sn_job;

/* What a program is for; passes choose the programs they change by it. */
typedef enum sn_role {
    SN_ROLE_TRAIN,      /* forward, backward and, where nothing accumulates, the update; else the first micro-batch of a step */
    SN_ROLE_TRAIN_NEXT, /* the later micro-batches: gradients are added */
    SN_ROLE_UPDATE,     /* gradient norm, clipping, optimizer of a step of several micro-batches */
    SN_ROLE_EVALUATE,   /* losses only */
    SN_ROLE_LOGITS,     /* all logits of a batch */
    SN_ROLE_GENERATE,   /* over the KV cache: prompt and decode buckets */
    SN_ROLE_LOAD        /* weights from their files, once */
} sn_role;
const char *sn_role_name(sn_role role);
static inline bool sn_role_trains(sn_role r) { return r == SN_ROLE_TRAIN || r == SN_ROLE_TRAIN_NEXT; }

typedef struct sn_graph {
    const char *name; /* program name */
    sn_role role;
    int micro_batches; /* of which one run takes the inputs: "ids", "ids.1", ... */
    int64_t times;     /* that a step runs it */
    struct sn_job *job;
    sn_value *values;
    size_t n_values, cap_values;
    sn_node *nodes;
    size_t n_nodes, cap_nodes;
    sn_nid *order; /* execution order; holds every live node once */
    size_t n_order, cap_order;
    /* State of the builder: the pass, phase, layer, ranks and name prefix that new nodes get, and its first error. */
    const char *made_by;
    sn_phase phase;
    sn_part part;
    int32_t layer;
    sn_split where;
    sn_status status;
    size_t insert_at; /* position in `order` for new nodes; SIZE_MAX: at the end */
    uint32_t next_site;
    sn_vid *of_persistent; /* by sn_pid: the value that stands for it, or SN_NONE */
    size_t n_of_persistent;
} sn_graph;

enum { SN_MAX_PROGRAMS = 8 };

/* Training in turns: in each turn of so many updates only the weights of that turn are trained, and only their gradients, states and
 * masters exist: those of different turns share bytes. They begin anew with each turn: states at zero, masters as their weights. One
 * program serves all turns; what a turn has no use for is not run (plan/turns.c). */
typedef enum sn_turn_order { SN_TURNS_RANDOM /* each once a round */, SN_TURNS_ASCENDING, SN_TURNS_DESCENDING } sn_turn_order;
typedef struct sn_turns {
    int count;     /* 0: everything is trained all the time */
    int64_t steps; /* updates of a turn */
    sn_turn_order order;
    uint64_t seed; /* of the random order */
} sn_turns;

/* The turn of an update, counted from 0, and how many updates of it came before. */
int sn_turn_at(const sn_turns *t, int64_t update);
int64_t sn_turn_step(const sn_turns *t, int64_t update);

/* 1 + the number of the turn of which this is the last update; 0: of none. */
int64_t sn_turn_ends(const sn_turns *t, int64_t update);

typedef struct sn_job {
    sn_pool pool;           /* names */
    sn_program_file *files; /* that instructions of its programs read, by their index here */
    size_t n_files, cap_files;
    const char *disk_folder; /* where the file behind the disk tier is made; NULL: nothing rests there */
    sn_persistent *persistent;
    size_t n_persistent, cap_persistent;
    sn_graph *graphs[SN_MAX_PROGRAMS];
    int n_graphs;
    sn_mesh mesh;
    sn_turns turns;
} sn_job;

sn_status sn_job_new(sn_job **out);
void sn_job_free(sn_job *job);

/* Gives back the room that graphs and tables have for more. */
void sn_job_settle(sn_job *job);

/* Bytes that the job's graphs and tables hold; after sn_job_settle all that they take. */
size_t sn_job_bytes(const sn_job *job);

/* Adds an empty program; name is copied. NULL with the error set when it cannot. */
sn_graph *sn_job_add_graph(sn_job *job, const char *name, sn_role role);
sn_graph *sn_job_graph(const sn_job *job, const char *name); /* NULL: no such program */
int sn_job_graph_index(const sn_job *job, const char *name); /* -1: no such program */
int sn_job_role_index(const sn_job *job, sn_role role);      /* the first program of this role; -1: none */

/* Adds a program that holds the same values and nodes as g, under the same ids. NULL with the error set when it cannot. */
sn_graph *sn_job_copy_graph(const sn_graph *g, const char *name, sn_role role);

/* Takes a program out of the job. */
void sn_job_remove_graph(sn_job *job, sn_graph *g);

/* Index in job->files of this path, which is added and copied when it is new; -1 with the error set when it cannot. */
int sn_job_add_file(sn_job *job, const char *path);

/* Adds a persistent value on the device tier, whole, not trainable; the caller adjusts the entry. SN_NONE on failure. */
sn_pid sn_job_add_persistent(sn_job *job, const char *name, sn_class class_of, sn_dtype form, sn_shape shape);
sn_pid sn_job_find(const sn_job *job, const char *name);

/* Says where and in which form a persistent value rests from now on, in the table and in every program. */
void sn_job_set_rest(sn_job *job, sn_pid p, sn_home rest);

/* The turn in which alone a persistent value exists: of a gradient, state or master that of its weight; -1: it is always there. */
int32_t sn_job_turn(const sn_job *job, sn_pid p);

/* Makes a persistent value a gradient, state or master of a parameter: it is of its layer and, where it has its shape or one element for
 * each run of it (state_run), is spread as it is over all axes of the mesh but the data-parallel one; with its shape it has its axes. */
void sn_job_derive(sn_job *job, sn_pid derived, sn_pid parameter);

/* The f32 master of a weight: what the update changes where the weight itself has 16 bits. SN_NONE: the weight is its own. */
sn_pid sn_job_master(const sn_job *job, sn_pid weight);

/* The part of the adapter beside a weight; SN_NONE: it has none (or weight is SN_NONE). */
sn_pid sn_job_adapter(const sn_job *job, sn_pid weight, sn_adapter_part part);

/* Whether what is trained are adapters and nothing else: then they are the result, not the model. */
bool sn_job_trains_adapters(const sn_job *job);

/* The builder. Errors are sticky: after the first, calls return SN_NONE and g->status holds the code, so that a model
 * reads like its maths and checks once. */
sn_vid sn_input(sn_graph *g, const char *name, sn_dtype dtype, sn_shape shape);
sn_vid sn_use_persistent(sn_graph *g, sn_pid p); /* the value of graph g that stands for p; made on first use */
void sn_mark_output(sn_graph *g, sn_vid v, const char *name);

/* Appends a node at g->insert_at. in[] may hold SN_NONE for absent optional inputs. out[] receives n_out values. */
sn_nid sn_append(sn_graph *g, sn_opcode op, const sn_attrs *attrs, int n_in, const sn_vid *in, const char *name, sn_vid *out);
/* The same with uses that say more than the value: a slice, or a form. */
sn_nid sn_append_uses(sn_graph *g, sn_opcode op, const sn_attrs *attrs, int n_in, const sn_use *in, const char *name, sn_vid *out);
/* The same as sn_append for an op with one wanted output. */
sn_vid sn_append1(sn_graph *g, sn_opcode op, const sn_attrs *attrs, int n_in, const sn_vid *in, const char *name);

const char *sn_name(sn_graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Checks every rule that a pass must keep: ids in range, values defined before use, slices inside their values, shapes and
 * dtypes as the ops say, persistent values mutated in order. The message names the node and the pass. */
sn_status sn_graph_verify(const sn_graph *g);

/* Runs every shape rule again in order, after a pass changed forms or attributes. */
sn_status sn_graph_infer(sn_graph *g);

/* Infers the split of every result from the splits of inputs and persistent values, and the split that each use needs. */
sn_status sn_graph_infer_splits(sn_graph *g);

/* How one element for each run of so many elements of a flattened value is spread over an axis of so many ranks where the value is spread
 * as x. False where that would cut runs: *out is then whole. */
bool sn_split_of_runs(const sn_shape *shape, const sn_split_axis *x, int ranks, int64_t run, sn_split_axis *out);

/* Their shape: one dimension; of a value in shards of the last of several, each with whole runs of its row, the value's dimensions, the
 * last one shorter by that factor. */
sn_shape sn_shape_of_runs(const sn_shape *shape, const sn_split *split, int64_t run);

/* Appends the nodes of `from`, a program over the same persistent values, in their order behind those of `to`. Their other values are
 * new; inputs are those of `to` by the name NAME.suffix (suffix NULL: NAME), which are added where there are none. */
sn_status sn_graph_stamp(sn_graph *to, const sn_graph *from, const char *suffix);

/* Removes from `order` the nodes whose outputs nobody uses (and that change nothing in place). */
sn_status sn_graph_drop_unused(sn_graph *g);

/* Position of a node in `order`. */
size_t sn_graph_position(const sn_graph *g, sn_nid n);

/* The first value of this name that is an input or an output; SN_NONE. */
sn_vid sn_graph_find(const sn_graph *g, const char *name);

/* One line a node, as text that diffs. */
struct sn_str;
void sn_graph_print(const sn_graph *g, struct sn_str *out);

/* The call record of a node at logical shapes, data pointers NULL. */
void sn_node_call(const sn_graph *g, const sn_node *n, sn_call *call);

#endif
