/* Communication between ranks: self, threads of one process, and (later) MPI and NCCL.
 *
 * A comm moves bytes only; sums are our kernels, in rank order. All calls are collective over the group: every
 * rank makes the same calls in the same order with the same sizes. */
#ifndef SN_PROGRAM_COMM_H
#define SN_PROGRAM_COMM_H

#include <stddef.h>

#include "base/status.h"

typedef struct sn_comm {
    int rank, size;
    /* peers[r] = rank r's `mine` pointer, readable until `done`. Both are barriers. */
    void (*publish)(struct sn_comm *c, const void *mine, const void **peers);
    void (*done)(struct sn_comm *c);
    void *state;
} sn_comm;

#endif
