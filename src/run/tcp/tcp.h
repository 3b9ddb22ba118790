/* Inside of the TCP comm: how ranks find each other (join.c), and what they then send (comm_tcp.c). */
#ifndef SN_RUN_TCP_H
#define SN_RUN_TCP_H

#include "run/launch.h"

/* A connected socket to every other rank: fds[rank], which are all -1 before, as this one's stays; the caller closes
 * them, after a failure too. Collective. Waits for `patience` seconds
 * (0: for ever). SN_ERR_NETWORK names the address, and the ranks that have not come; SN_ERR_USAGE where ranks do not fit together. */
sn_status sn_tcp_join(const sn_launch *launch, double patience, int *fds);

#endif
