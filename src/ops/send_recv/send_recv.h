/* send_recv: x of the rank `from` of a mesh axis becomes y of its rank `to`: the same bytes in another place. The sending rank has no
 * output, the receiving one no input; no other rank of the axis takes part. */
#ifndef SN_OPS_SEND_RECV_H
#define SN_OPS_SEND_RECV_H

#include "program/kernel.h"

enum {
    SN_SEND_RECV_AXIS = 0, /* int: sn_mesh_axis */
    SN_SEND_RECV_FROM = 1, /* int: index of a rank on it */
    SN_SEND_RECV_TO = 2    /* int: another */
};

extern const sn_kernel sn_send_recv_cpu[];

#endif
