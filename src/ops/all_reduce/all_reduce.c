#include "ops/all_reduce/all_reduce.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t *i = c->attrs.i, ranks = i[SN_ALL_REDUCE_RANKS], adds = i[SN_ALL_REDUCE_ADDS];
    SN_TRY(sn_need_mesh_axis("all_reduce", i[SN_ALL_REDUCE_AXIS]));
    if (ranks < 1) return sn_fail(SN_ERR_SHAPE, "all_reduce: ranks must be 1 or more, found %lld", (long long)ranks);
    if (c->n_in % 2) return sn_fail(SN_ERR_SHAPE, "all_reduce: wants pairs of x and into, found %d inputs", c->n_in);
    if (adds < 0 || adds >> c->n_in / 2) return sn_fail(SN_ERR_SHAPE, "all_reduce: adds is %lld, of %d sums", (long long)adds, c->n_in / 2);
    for (int k = 0; k < c->n_in; k += 2) {
        SN_TRY(sn_need_any("all_reduce", c, k, "x"));
        SN_TRY(sn_need_float("all_reduce", c, k, "x"));
        SN_TRY(sn_need_float("all_reduce", c, k + 1, "into"));
        SN_TRY(sn_need_shape("all_reduce", c, k + 1, "into", &c->in[k].shape));
    }
    return SN_OK;
}

static sn_cost cost(const sn_call *c) {
    sn_cost sum = {0};
    for (int k = 0; k < c->n_in; k++) {
        sum.flops += k % 2 ? 0 : (double)sn_elements(&c->in[k]);
        sum.bytes += 2 * (double)sn_tensor_bytes(&c->in[k]);
    }
    return sum;
}

const sn_op sn_op_all_reduce = {.name = "all_reduce",
                                .min_in = 2,
                                .max_in = 2 * SN_ALL_REDUCE_MOST,
                                .n_out = 0,
                                .mutates = 0xaaaaaaaau & ((1u << 2 * SN_ALL_REDUCE_MOST) - 1),
                                .int_attrs = {"axis", "ranks", "adds"},
                                .comm_axis = 1 + SN_ALL_REDUCE_AXIS,
                                .shape = shape,
                                .accepts = sn_accepts_float,
                                .cost = cost,
                                .kernels = {sn_all_reduce_cpu}};
