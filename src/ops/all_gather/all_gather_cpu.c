#include "ops/all_gather/all_gather.h"

#include "ops/math/rows.h"
#include "ops/math/shard.h"
#include "program/comm.h"

/* Bytes of n elements, whole blocks. */
static size_t bytes_of(sn_dtype form, int64_t n) { return (size_t)(n / sn_dtypes[form].block * sn_dtypes[form].bytes); }

static void all_gather_run(const sn_call *c) {
    const sn_tensor *x = &c->in[0], *y = sn_has(c, 1) ? &c->in[1] : &c->out[0];
    const int ranks = c->comm ? c->comm->size : 1;
    const int64_t n = sn_elements(y), row = c->attrs.i[SN_ALL_GATHER_ROWS] ? sn_row_elements(&y->shape) : 1;
    const int64_t shard = sn_shard(n, c->attrs.i[SN_ALL_GATHER_UNIT] * row, ranks);
    size_t at[SN_RANKS_MOST + 1] = {0};
    for (int r = 0; r < ranks; r++) at[r + 1] = at[r] + bytes_of(x->dtype, sn_shard_used(n, shard, r));
    if (ranks > 1) c->comm->all_gather(c->comm, x->data, at, y->data);
    else if (at[1] && y->data != x->data) memcpy(y->data, x->data, at[1]);
}

SN_ONE_KERNEL(sn_all_gather_cpu, "reference", SN_CPU_REFERENCE, NULL, all_gather_run);
