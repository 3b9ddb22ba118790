/* How long a step will take: a roofline over the instructions' costs, and the bytes of collectives over the links.
 *
 * Estimates at peak rates: a compute instruction takes the longer of its arithmetic and its traffic, a collective of B bytes over N ranks
 * (N - 1) / N * B over the slowest link of the ring (Patarasuk and Yuan 2009). Nothing is overlapped, as no collective is issued ahead of
 * its use yet. */
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

/* What an estimate is made with. */
typedef struct sn_rates {
    double f32_flops, bf16_flops; /* a second; bf16's count where an instruction multiplies bf16 by bf16, 0: there is no such unit */
    double bytes_per_s;           /* of memory */
    double ring;                  /* bytes/s that pass a rank in a ring; 0: collectives are copies in memory */
    double host;                  /* bytes/s of copies between tiers; 0: they are copies in memory */
} sn_rates;

/* Of an accelerator's ranks, spread over nodes. */
sn_rates sn_accelerator_rates(const sn_accelerator *a, int nodes);

typedef struct sn_forecast {
    const sn_accelerator *accelerator; /* NULL: this machine */
    int ranks, nodes;
    double compute_seconds, communication_seconds; /* of a step: all micro-batches and the update */
    double sent_bytes;                             /* that a rank sends in a step, by rings */
    double tokens_per_s;                           /* of a rank */
} sn_forecast;

/* Of one run of a program. */
typedef struct sn_program_time {
    double compute, communication; /* seconds */
    double sent;                   /* bytes that a rank sends */
} sn_program_time;
sn_program_time sn_program_estimate(const sn_program *p, const sn_rates *rates, const sn_mesh *mesh);

/* Estimates a step of a training job: its first micro-batch, accumulation - 1 later ones, the update. tokens: of a rank's step. */
void sn_plan_forecast(const sn_plan *plan, const sn_rates *rates, int64_t accumulation, int64_t tokens, sn_forecast *f);

#endif
