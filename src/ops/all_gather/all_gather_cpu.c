#include "ops/all_gather/all_gather.h"

#include "ops/math/rows.h"
#include "ops/math/shard.h"
#include "program/comm.h"

enum { RANKS_MOST = 1024 };

/* Bytes of n elements, whole blocks. */
static size_t bytes_of(sn_dtype form, int64_t n) { return (size_t)(n / sn_dtypes[form].block * sn_dtypes[form].bytes); }

static void gather_peers(const sn_call *c, const void *const *peers, int ranks) {
    const sn_tensor *x = &c->in[0], *y = sn_has(c, 1) ? &c->in[1] : &c->out[0];
    const int64_t n = sn_elements(y), shard = sn_shard(n, c->attrs.i[SN_ALL_GATHER_UNIT], ranks);
    char *to = y->data;
    for (int r = 0; r < ranks; r++) {
        const size_t bytes = bytes_of(x->dtype, sn_shard_used(n, shard, r));
        if (bytes && to != peers[r]) memcpy(to, peers[r], bytes);
        to += bytes;
    }
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

SN_ONE_KERNEL(sn_all_gather_cpu, "reference", SN_CPU_REFERENCE, NULL, all_gather_run);
