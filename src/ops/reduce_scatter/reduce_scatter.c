#include "ops/reduce_scatter/reduce_scatter.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t *i = c->attrs.i, unit = i[SN_REDUCE_SCATTER_UNIT], ranks = i[SN_REDUCE_SCATTER_RANKS];
    SN_TRY(sn_need_any("reduce_scatter", c, 0, "x"));
    if (c->in[0].dtype != SN_F64) SN_TRY(sn_need_float("reduce_scatter", c, 0, "x"));
    SN_TRY(sn_need_mesh_axis("reduce_scatter", i[SN_REDUCE_SCATTER_AXIS]));
    if (unit < 1 || ranks < 1)
        return sn_fail(SN_ERR_SHAPE, "reduce_scatter: unit and ranks must be 1 or more, found %lld and %lld", (long long)unit,
                       (long long)ranks);
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

/* The summands of all ranks are read. */
static sn_cost cost(const sn_call *c) {
    const double ranks = (double)c->attrs.i[SN_REDUCE_SCATTER_RANKS], shard = (double)sn_elements(&c->out[0]);
    return (sn_cost){.flops = shard * ranks, .bytes = (ranks + 1) * (double)sn_tensor_bytes(&c->out[0])};
}

const sn_op sn_op_reduce_scatter = {.name = "reduce_scatter",
                                    .min_in = 1,
                                    .max_in = 1,
                                    .n_out = 1,
                                    .int_attrs = {"axis", "unit", "ranks", "copies", "rows"},
                                    .comm_axis = 1 + SN_REDUCE_SCATTER_AXIS,
                                    .shape = shape,
                                    .accepts = sn_accepts_float,
                                    .cost = cost,
                                    .kernels = {sn_reduce_scatter_cpu}};
