#include "ops/all_gather/all_gather.h"

#include "ops/math/rows.h"
#include "ops/math/shard.h"
#include "program/comm.h"

enum { RANKS_MOST = 1024 };

static void gather_peers(const sn_call *c, const void *const *peers, int ranks) {
    const sn_tensor *x = &c->in[0], *y = &c->out[0];
    const int64_t shard = sn_elements(x), width = sn_dtypes[x->dtype].bytes;
    for (int r = 0; r < ranks; r++)
        memcpy(sn_element(y, shard * r < sn_elements(y) ? shard * r : 0), peers[r],
               (size_t)(sn_shard_used(c->attrs.i[SN_ALL_GATHER_N], shard, r) * width));
}

static void all_gather_run(const sn_call *c) {
    const void *peers[RANKS_MOST];
    if (!c->comm || c->comm->size == 1) {
        peers[0] = c->in[0].data;
        gather_peers(c, peers, 1);
        return;
    }
    c->comm->publish(c->comm, c->in[0].data, peers);
    gather_peers(c, peers, c->comm->size);
    c->comm->done(c->comm);
}

static bool all_gather_takes(const sn_call *c) { return c->attrs.i[SN_ALL_GATHER_RANKS] <= RANKS_MOST; }

const sn_kernel sn_all_gather_cpu[] = {
    {.name = "reference", .device = SN_DEVICE_CPU, .needs = SN_CPU_REFERENCE, .takes = all_gather_takes, .run = all_gather_run},
    {.name = NULL}};
