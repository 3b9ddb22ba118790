/* The plan: from graphs to programs over arenas, and the bill.
 *
 * plan/ knows no technique: it sees values with homes and lifetimes. It alone turns logical shapes into a rank's local
 * ones, finds kernels, lays out arenas, orders queues. What it lays out is what run/ allocates. */
#ifndef SN_PLAN_PLAN_H
#define SN_PLAN_PLAN_H

#include "graph/graph.h"
#include "program/files.h"
#include "program/program.h"

typedef struct sn_device_shape {
    const char *name; /* "cpu", "cpu-split", "null" */
    sn_device_kind kind;
    uint32_t addresses; /* bit t: reads and writes tier t directly */
    uint32_t features;  /* SN_CPU_* bits, or the sm version */
    int threads;        /* of a rank's team */
} sn_device_shape;

typedef struct sn_bill {
    uint64_t by_tier[SN_TIER_COUNT];
    uint64_t by_class[SN_TIER_COUNT][SN_CLASS_COUNT]; /* at the device tier's peak; sums to by_tier */
    uint64_t reserved, total;                         /* total = device + host + reserved */
    uint64_t files;                                   /* of by_tier[disk]: checkpoints and exports */
    uint64_t at_rest[SN_CLASS_COUNT];                 /* persistent values, those that live inside one program too */
    const char *peak_program, *peak_op;               /* where the device tier peaks */
    struct {
        const char *name;
        sn_class class_of;
        uint64_t bytes;
    } largest[8]; /* values live at the peak, the largest first */
    int n_largest;
} sn_bill;

/* A persistent value that one program alone touches, and writes before it reads, lives inside that program like any
 * transient value and has no bytes between programs. */
typedef struct sn_placed {
    uint64_t offset, bytes;
    sn_tier tier;
    sn_shape shape; /* local */
    sn_shape block; /* what the rank holds over the axes on which it is in shards of dimensions, and where that begins */
    int64_t begin[SN_MAX_DIMS];
    int thirds; /* not 0: 1 + the dimension that holds three matrices beside each other, and of each as much; begin counts in one */
    int64_t first, count; /* its elements; first: index in the block, 0 unless it is a flat shard of that */
    bool within;          /* lives inside one program: bytes and offset are 0 */
    int32_t turn;         /* in which alone it exists: its bytes are shared with values of other turns; -1: it is always there */
} sn_placed;

typedef struct sn_io_slot {
    const char *name;
    uint64_t offset, bytes; /* in the host arena; of an input's first slot */
    sn_shape shape;         /* local */
    sn_dtype dtype;
    bool input;
} sn_io_slot;

typedef struct sn_planned {
    sn_program program;
    sn_role role;
    int micro_batches; /* of which one run takes the inputs */
    sn_io_slot *io;
    int n_io;
    double span; /* seconds of a run by the request's rates, with what ranks wait for one another; 0: not followed */
    /* Lifetimes, for the bill and the picture: one entry a transient block. */
    struct sn_life *lives;
    size_t n_lives;
} sn_planned;

/* One block of bytes over time, in the order of instructions. */
typedef struct sn_life {
    uint32_t first, last, value; /* value: id in the graph; SN_NONE: scratch of instruction `first`, and of others of its queue */
    uint64_t offset, bytes;
    sn_class class_of;
    sn_tier tier;
    sn_turn_span turns;
} sn_life;

typedef struct sn_plan {
    sn_pool pool;
    sn_planned programs[SN_MAX_PROGRAMS];
    int n_programs;
    sn_placed *persistent; /* by sn_pid */
    size_t n_persistent;
    uint64_t persistent_bytes[SN_TIER_COUNT], arena_bytes[SN_TIER_COUNT];
    uint64_t input_stride; /* bytes from slot 0 of an input to its slot 1, in the host arena */
    int input_slots;
    const sn_program_file *files; /* the job's: what its programs read */
    int n_files;
    const char *disk_folder; /* the job's: where the disk arena's file is made; may be NULL when there is none */
    sn_bill bill;
    sn_device_shape device;
    bool rough; /* over the request's `most`: values have no places, arenas are as large as what lives at once, queues do not wait */
    sn_mesh mesh;
    int rank;
    int ranks, ranks_planned; /* of sn_plan_cluster: compared with one another; planned really, the others are like one of these */
} sn_plan;

typedef struct sn_plan_request {
    sn_device_shape device;
    int rank;                     /* index in the mesh */
    uint64_t reserved;            /* bytes that no plan owns (engine/ measures them) */
    uint64_t files;               /* bytes of checkpoints and exports */
    uint64_t staging;             /* bytes of the transient part that exporting needs */
    uint64_t most;                /* not 0: a plan whose device arena cannot be smaller than this much is of no use and stays rough */
    const struct sn_rates *rates; /* by which sn_plan_cluster follows how long ranks wait for one another; NULL: it does not */
    bool reuse;                   /* false: every value gets its own bytes (the tests' oracle) */
} sn_plan_request;

/* Plans all programs of a job. A missing kernel is SN_ERR_PLAN naming op, forms and device. */
sn_status sn_plan_make(const sn_job *job, const sn_plan_request *request, sn_plan **out);
void sn_plan_free(sn_plan *plan);

/* The shape of a value at this rank: shards of dimensions first (those dealt before runs), then flat ones, each ceil(units / ranks) units,
 * the last ones fewer or none. A flat shard is a vector of the elements that this rank really holds; *first (may be NULL) is the index of
 * its first element among those of which it is a shard, 0 of anything else. */
sn_shape sn_local_shape(const sn_shape *logical, const sn_split *split, const sn_mesh *mesh, int rank, int64_t *first);

/* The same without flat shards; begin[d]: where it begins along each dimension. */
sn_shape sn_local_block(const sn_shape *logical, const sn_split *split, const sn_mesh *mesh, int rank, int64_t begin[SN_MAX_DIMS]);

/* Of a placed value of this logical shape, the elements from `element` on (in it) that lie in a row in the whole, too: how many; *where:
 * the logical index of the first. */
int64_t sn_placed_run(const sn_placed *at, const sn_shape *logical, int64_t element, int64_t *where);

/* Text of a program, one instruction a line. */
struct sn_str;
void sn_program_print(const sn_program *p, struct sn_str *out);

/* The bill as a table / as a JSON object that the caller closes, perhaps with members of its own / as one HTML page that draws memory over
 * the programs. forecast: NULL: none was made. */
struct sn_forecast;
void sn_bill_print(const sn_plan *plan, const struct sn_forecast *forecast, struct sn_str *out);
void sn_bill_json(const sn_plan *plan, const struct sn_forecast *forecast, struct sn_str *out);
void sn_plan_html(const sn_plan *plan, const sn_job *job, struct sn_str *out);

/* Internal to plan/: sets waits and signals of a program from the bytes its instructions touch; fills the bill. */
void sn_plan_queues(sn_program *p);
sn_status sn_plan_fill_bill(sn_plan *plan, const sn_job *job, const sn_plan_request *request);
bool sn_args_conflict(const sn_instr *a, const sn_instr *b);

#endif
