/* How long a step will take: the time of each instruction from its costs, and the queues walked as the run walks them.
 *
 * A compute instruction takes the longer of its arithmetic and its traffic at peak rates, times how much longer its kernel was seen to take
 * (a profile of the machine; without one, 1). A collective of B bytes over N ranks takes (N - 1) / N * B over the slowest link of the ring
 * (Patarasuk and Yuan 2009): inside a node the link of its devices, between nodes what each of the rings that leave a node side by side has
 * of its adapters; reading and writing disk their bytes at the disk's rates. Each queue does its instructions in order, each one
 * after the events that it waits for: what the plan lets overlap, overlaps. */
#ifndef SN_PLAN_FORECAST_H
#define SN_PLAN_FORECAST_H

#include "plan/plan.h"

/* An accelerator and the machine that it usually comes in. Rates are peaks of the data sheet: dense, one direction of a link. */
typedef struct sn_accelerator {
    const char *name; /* "h100-80g" */
    uint64_t bytes;   /* of device memory, as the driver reports it */
    double f32_flops, bf16_flops, bytes_per_s;
    double link;    /* bytes/s from one device to the others of its node: NVLink, else PCIe */
    double host;    /* bytes/s between a device and its host: PCIe */
    double network; /* bytes/s out of a whole node */
    const char *source;
} sn_accelerator;

/* NULL: unknown. */
const sn_accelerator *sn_accelerator_find(const char *name);

/* How much longer a kernel takes than the roofline says: measured points, by kernel and by how much there is to do. See
 * sn_profile_factor. */
enum { SN_PROFILE_KEY = 48, SN_PROFILE_MOST = 320 };

typedef struct sn_profile_point {
    char key[SN_PROFILE_KEY]; /* of sn_profile_key */
    double work, intensity;   /* seconds that the roofline says; operations a byte */
    double factor;            /* seconds seen, over those */
    double seen;              /* times */
} sn_profile_point;

typedef struct sn_profile {
    size_t n;
    sn_profile_point points[SN_PROFILE_MOST]; /* in any order */
} sn_profile;

/* What an estimate is made with. */
typedef struct sn_rates {
    double f32_flops, bf16_flops; /* a second; bf16's count where an instruction multiplies bf16 by bf16, 0: there is no such unit */
    double bytes_per_s;           /* of memory */
    double latency;               /* seconds that a collective takes beside its bytes */
    double ring;                  /* bytes/s that pass a rank in a ring; 0: collectives are copies in memory */
    double network;               /* bytes/s out of a whole node */
    int node_ranks;               /* ranks of a node; 0: all are on one */
    double host;                  /* bytes/s of copies between tiers; 0: they are copies in memory */
    double disk_read, disk_write; /* bytes/s; 0: as memory */
    double rows; /* that a micro-batch is made of: an op whose cost counts pairs of tokens does 1 / rows of it, as rows do not see each
                    other; 0: 1 */
    sn_profile profile; /* n 0: kernels reach the peaks */
} sn_rates;

/* "matmul/avx512 q4_1": what is alike to a profile. */
void sn_profile_key(const sn_instr *in, char key[SN_PROFILE_KEY]);

/* Operations a byte. */
double sn_instr_intensity(const sn_instr *in, const sn_rates *rates);

/* Seconds of an instruction at the peaks. */
double sn_roofline_seconds(const sn_instr *in, const sn_rates *rates);

/* The factor of the points of this key, weighted by how near they are in the logarithms of work and intensity; of another kernel of the
 * same op where there is none; 1 without any. */
double sn_profile_factor(const sn_profile *p, const sn_instr *in, double work, double intensity);

/* Of an accelerator's ranks, spread over nodes (at least 1), each with one NVMe drive. */
sn_rates sn_accelerator_rates(const sn_accelerator *a, int ranks, int nodes);

/* Rings along an axis of the mesh that leave a node side by side; 0: they stay inside. */
int sn_rings_between(const sn_rates *rates, const sn_mesh *mesh, int axis);

/* Bytes/s that pass a rank in a ring along an axis. */
double sn_ring_rate(const sn_rates *rates, const sn_mesh *mesh, int axis);

typedef struct sn_forecast {
    const sn_accelerator *accelerator; /* NULL: this machine */
    int ranks, nodes;
    double step_seconds;                                       /* all micro-batches and the update, with what overlaps */
    double compute_seconds, communication_seconds, io_seconds; /* of it each queue is at work; io: disk, and copies between tiers */
    double sent_bytes;                                         /* that a rank sends in a step, by rings */
    double node_sent_bytes;                                    /* of those of all ranks of a node, what leaves it */
    double disk_read_bytes, disk_written_bytes;                /* of the disk arena in a step */
    double tokens_per_s;                                       /* of a rank */
} sn_forecast;

/* The queues of a run of a program, as far as they have been walked. */
typedef struct sn_walk {
    double *ended; /* [queue][k]: when the k-th instruction of a queue has ended; [queue][0]: 0 */
    size_t row;
    uint32_t done[SN_QUEUE_COUNT];
    double span; /* when the last one so far ends */
} sn_walk;
sn_status sn_walk_open(size_t most_instructions, sn_walk *w);
void sn_walk_close(sn_walk *w); /* also a zeroed one */
void sn_walk_restart(sn_walk *w);
/* When the next instruction of a queue can start, by its own queue and by the events that it waits for. */
double sn_walk_ready(const sn_walk *w, int queue, const uint32_t wait[SN_MAX_WAITS]);
void sn_walk_take(sn_walk *w, int queue, double start, double seconds);

/* Of one run of a program. */
typedef struct sn_program_time {
    double span;                       /* seconds from its beginning to the end of the last instruction */
    double compute, communication, io; /* seconds that the queues are at work */
    double sent, node_sent;            /* bytes that a rank sends; that leave its node */
    double disk_read, disk_written;    /* bytes of the disk arena */
} sn_program_time;
/* As one rank alone: others are there when it comes to a collective. seconds (may be NULL): of each instruction. Fails for want of memory
 * only. */
sn_status sn_program_estimate(const sn_program *p, const sn_rates *rates, const sn_mesh *mesh, double *seconds, sn_program_time *out);

/* Seconds of a run of a planned program, by its estimate as one rank alone: those, or longer where it waits for others. */
static inline double sn_planned_span(const sn_planned *p, const sn_program_time *alone) {
    return p->span > alone->span ? p->span : alone->span;
}

/* Estimates a step of a training job: its first micro-batch, accumulation - 1 later ones, the update. tokens: of a rank's step. */
sn_status sn_plan_forecast(const sn_plan *plan, const sn_rates *rates, int64_t accumulation, int64_t tokens, sn_forecast *f);

#endif
