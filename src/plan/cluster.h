/* All ranks of a job planned in one process.
 *
 * Ranks differ in nothing but their shards, of which the last ones of a value are smaller or empty, and what is at some ranks only.
 * So ranks whose shards all have the same sizes, at the same places, have the same plan, and one of them is planned for all. Which ranks
 * those are follows from sizes and places alone. */
#ifndef SN_PLAN_CLUSTER_H
#define SN_PLAN_CLUSTER_H

#include "plan/plan.h"

/* Finds the classes of ranks with equal local shapes. *first: the lowest rank of each, rising, *n of them; the caller's (sn_free). */
sn_status sn_plan_rank_classes(const sn_job *job, int **first, size_t *n);

/* Follows what two ranks' plans communicate: in what both have a part, they make the same calls in the same order with the same bytes.
 * Otherwise one would wait for the other for ever: SN_ERR_PLAN naming both ranks, the program, both instructions and what differs. */
sn_status sn_plan_compare_collectives(const sn_plan *a, const sn_plan *b);

/* Plans one rank of each class and follows what all of them communicate, which ends if none waits for ever. *out is the plan with the
 * largest total, of the lowest such rank; its fields ranks and ranks_planned say how it came to be. request->rank is not used. */
sn_status sn_plan_cluster(const sn_job *job, const sn_plan_request *request, sn_plan **out);

#endif
