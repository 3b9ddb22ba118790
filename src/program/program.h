/* A program: a flat list of instructions over arenas, as a plan laid it out.
 *
 * An instruction is plain data of fixed size, its arguments stand in a table of the program. Arguments name bytes by
 * (arena, offset); nothing in a program points into a graph, so it can be printed, compared and walked by anything. */
#ifndef SN_PROGRAM_PROGRAM_H
#define SN_PROGRAM_PROGRAM_H

#include <stdint.h>

#include "program/kernel.h"

/* Where bytes live. A device says which tiers it addresses directly: on a CPU, host memory is device memory. */
typedef enum sn_tier { SN_TIER_DEVICE, SN_TIER_HOST, SN_TIER_DISK, SN_TIER_COUNT } sn_tier;
const char *sn_tier_name(sn_tier t);

/* Rows of the bill. GAP is alignment and holes of an arena at its peak. */
#define SN_CLASS_LIST(X)              \
    X(WEIGHTS, "weights")             \
    X(GRADIENTS, "gradients")         \
    X(OPTIMIZER, "optimizer")         \
    X(ACTIVATIONS, "activations")     \
    X(KV_CACHE, "kv_cache")           \
    X(COMMUNICATION, "communication") \
    X(STAGING, "staging")             \
    X(WORKSPACE, "workspace")         \
    X(GAP, "gap")
typedef enum sn_class {
#define X(id, name) SN_CLASS_##id,
    SN_CLASS_LIST(X)
#undef X
        SN_CLASS_COUNT
} sn_class;
const char *sn_class_name(sn_class c);

typedef enum sn_queue { SN_QUEUE_COMPUTE, SN_QUEUE_COPY, SN_QUEUE_COMM, SN_QUEUE_IO, SN_QUEUE_COUNT } sn_queue;
const char *sn_queue_name(sn_queue q);

enum { SN_NO_ARENA = 0xff };

/* Turns of a job that trains in turns (graph/graph.h), inclusive; of other jobs 0 is the only one. */
typedef struct sn_turn_span {
    uint16_t first, last;
} sn_turn_span;
static inline bool sn_in_turn(sn_turn_span s, int turn) { return s.first <= turn && turn <= s.last; }

/* The least span of both; one that is empty counts for nothing. */
static inline sn_turn_span sn_turn_hull(sn_turn_span a, sn_turn_span b) {
    if (a.first > a.last) return b;
    if (b.first > b.last) return a;
    return (sn_turn_span){a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last};
}

typedef struct sn_arg {
    uint64_t offset;
    uint8_t arena;    /* sn_tier of the arena; SN_NO_ARENA: an absent optional input */
    uint8_t writes;   /* an output, or an input that the op mutates */
    uint8_t class_of; /* sn_class */
    uint8_t slotted;  /* an input of the program: its address depends on the slot in use */
    sn_dtype dtype;
    sn_shape shape;
    uint32_t value;     /* id in the graph, for explain and the tests */
    sn_turn_span turns; /* in which the value is touched: an output outside them is left out of the call */
} sn_arg;

enum { SN_MAX_WAITS = SN_QUEUE_COUNT };

typedef struct sn_instr {
    const char *op; /* name */
    const sn_kernel *kernel;
    sn_arg *in, *out; /* in the program's table of arguments */
    uint8_t n_in, n_out, queue;
    uint8_t axis; /* of the comm queue: the axis of the mesh over whose ranks it communicates */
    bool pairs;   /* flops count pairs of tokens of one sequence: see graph/op.h */
    bool pair;    /* of the comm queue: two ranks of it alone take part: */
    int16_t from, to;
    sn_attrs attrs;
    uint64_t scratch_offset, scratch_bytes; /* in the device arena */
    uint64_t disk_bytes;                    /* read or written in the disk arena, in whole blocks where that can be */
    bool disk_writes;
    /* wait[q]: this instruction starts after the instruction of queue q that signals count wait[q]; 0: no wait.
     * Every instruction signals its own queue: the k-th of a queue (from 1) raises that queue's event to k once it and all
     * before it have ended. The io queue starts its instructions in order, up to SN_DISK_TRANSFERS at once, and waits for its
     * own too; the others run one after the other. */
    uint32_t wait[SN_MAX_WAITS];
    uint32_t signal;
    sn_turn_span turns;  /* in which it runs */
    uint32_t node;       /* id in the graph */
    const char *name;    /* of the node: "layers.0.q_proj" */
    const char *made_by; /* the pass, or "model" */
    double flops, bytes; /* cost, for the time estimate */
} sn_instr;

typedef struct sn_program {
    const char *name; /* "step" */
    sn_instr *instrs;
    uint32_t count;
    sn_arg *args; /* of all instructions, in their order */
    uint32_t n_args;
    uint64_t transient_bytes[SN_TIER_COUNT]; /* beyond the persistent part, by arena */
    int turns;                               /* how many there are; 0: everything runs */
} sn_program;

#endif
