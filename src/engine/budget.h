/* The budget: what a job may take in each tier, what its plan needs there, and how it is refused.
 *
 * A rank's memory and a node's are held apart. Where the device addresses host memory (a CPU) the two are one memory, and a rank needs its
 * arenas in both tiers and `reserved`; elsewhere its device tier alone. */
#ifndef SN_ENGINE_BUDGET_H
#define SN_ENGINE_BUDGET_H

#include "engine/session.h"

/* DEVICE is a rank's, the others are a node's. */
typedef enum sn_hold { SN_HOLD_DEVICE, SN_HOLD_HOST, SN_HOLD_DISK, SN_HOLD_COUNT } sn_hold;

typedef struct sn_limits {
    uint64_t most[SN_HOLD_COUNT]; /* bytes; UINT64_MAX: no bound */
    bool stated[SN_HOLD_COUNT];   /* by the recipe: else it is what is free */
    uint64_t disk_free; /* bytes free where values rest on disk; UINT64_MAX: unknown. A search keeps to it; training checks it anew */
    bool one_memory;    /* the device tier is host memory */
    bool whole;  /* one_memory does not hold, and yet the device's bound is for a rank's arenas in both tiers: a CPU that plays a device */
    int sharing; /* ranks of a node */
} sn_limits;

/* From `memory` (a bare number bounds the memory of a rank, on an accelerator its device memory; device=, host=, disk=), else the capacity
 * of device_shape, else, unless the ranks are only planned, what the cgroup and the machine have free, divided by the ranks of the node.
 * The session is planned. */
sn_limits sn_limits_of(const sn_session *s, const sn_options *recipe);

/* Those that the recipe states alone: what is free is no bound to a job that is only planned. */
sn_limits sn_limits_stated(const sn_session *s, const sn_options *recipe);

/* Collective over the processes (NULL: one alone): all get the smallest. */
void sn_limits_agree(sn_limits *l, const sn_world *w);

/* The bytes that a plan needs of each. bill: of the node's largest rank. */
void sn_needs_of(const sn_limits *l, const sn_bill *bill, uint64_t need[SN_HOLD_COUNT]);
bool sn_limits_hold(const sn_limits *l, const sn_bill *bill); /* disk_free too */

/* SN_OK, or SN_ERR_BUDGET naming each bound that is broken, the bytes missing there, and, of memory, where the peak is and what is largest
 * there. change (may be NULL): what would fit, as the end of the sentence. */
sn_status sn_limits_check(const sn_limits *l, const sn_bill *bill, const char *change);

/* sn_limits_check of the session's plan. */
sn_status sn_session_check_budget(const sn_session *s, const sn_options *recipe);

/* The bound of a rank's memory alone. */
uint64_t sn_budget_bytes(const sn_options *recipe, int ranks);

#endif
