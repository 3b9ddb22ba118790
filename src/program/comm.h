/* Communication between ranks: threads of one process, processes over MPI, (later) NCCL.
 *
 * A comm moves bytes only; sums are our kernels, in rank order. All calls but `exchange` are collective over the group: every rank
 * makes the same calls in the same order with sizes that agree. A call does not fail: where a rank is gone or silent for longer than
 * `patience`, a comm between processes ends them all and says which one it was. One thread at a time calls a comm. */
#ifndef SN_PROGRAM_COMM_H
#define SN_PROGRAM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SN_RANKS_MOST = 1024 };

typedef struct sn_comm {
    int rank, size;
    bool crowded;    /* more ranks than processors: who waits for another sleeps */
    bool copies;     /* between address spaces: all_to_all needs room for what it receives */
    double patience; /* seconds that a call waits for another rank; 0: for ever */
    /* Rank r gets bytes[r] bytes at send + at[r]; pieces[r] = the bytes[rank] bytes that rank r sent here, readable until `done`.
     * room: (size - 1) * bytes[rank] bytes where the comm copies, else unused. `at` and `bytes` are alike on all ranks. */
    void (*all_to_all)(struct sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces);
    void (*done)(struct sn_comm *c);
    /* Rank r's bytes become out[at[r] .. at[r + 1]) on every rank; `mine` may be this rank's part of `out`. */
    void (*all_gather)(struct sn_comm *c, const void *mine, const size_t *at, void *out);
    /* Sends to rank `to` and receives from rank `from`, at once; -1: does not. Both sides say the same size. */
    void (*exchange)(struct sn_comm *c, int to, const void *send, size_t sends, int from, void *receive, size_t receives);
    /* A comm of n of its ranks, this one among them, in the order of `ranks`; every one of them asks for it. It lives as long as c
     * does and is not closed. NULL: no memory. */
    struct sn_comm *(*group)(struct sn_comm *c, const int *ranks, int n);
    /* Of a comm between processes. failed: this rank gives up; the others are not waited for and will be ended. */
    void (*close)(struct sn_comm *c, bool failed);
    void *state;
    uint64_t sent; /* bytes to other ranks so far */
} sn_comm;

/* Where a rank stands in a list of n; n: it does not. */
static inline int sn_place_in(const int *ranks, int n, int rank) {
    int i = 0;
    while (i < n && ranks[i] != rank) i++;
    return i;
}

#endif
