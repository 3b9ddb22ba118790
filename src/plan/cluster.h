/* All ranks of a job planned in one process.
 *
 * Ranks differ in nothing but their flat shards: the last ones of a value are smaller or empty. So ranks whose shards all have the
 * same sizes have the same plan, and one of them is planned for all. Which ranks those are follows from sizes alone. */
#ifndef SN_PLAN_CLUSTER_H
#define SN_PLAN_CLUSTER_H

#include "plan/plan.h"

/* Finds the classes of ranks with equal local shapes. *first: the lowest rank of each, rising, *n of them; the caller's (sn_free). */
sn_status sn_plan_rank_classes(const sn_job *job, int **first, size_t *n);

/* Whether two ranks' plans make the same collectives in the same order with the same bytes: otherwise one would wait for the other for
 * ever. SN_ERR_PLAN naming both ranks, the program, both instructions and what differs. */
sn_status sn_plan_compare_collectives(const sn_plan *a, const sn_plan *b);

/* Plans one rank of each class and compares all with rank 0. *out is the plan with the largest total, of the lowest such rank; its
 * fields ranks and ranks_planned say how it came to be. request->rank is not used. */
sn_status sn_plan_cluster(const sn_job *job, const sn_plan_request *request, sn_plan **out);

#endif
