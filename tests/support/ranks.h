/* Ranks that are threads of a test, with a comm of plain barriers. */
#ifndef SN_TESTS_RANKS_H
#define SN_TESTS_RANKS_H

#include "program/comm.h"

/* Runs fn(context, comm) on n threads, rank 0 .. n - 1, and waits for all. copies: as between processes. Assertions belong after
 * it, on the test's thread. */
void test_ranks(int n, bool copies, void (*fn)(void *context, sn_comm *comm), void *context);

#endif
