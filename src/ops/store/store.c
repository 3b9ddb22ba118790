#include "ops/store/store.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("store", c, 0, "x"));
    SN_TRY(sn_need_form("store", c, 1, "into", c->in[0].dtype));
    return sn_need_shape("store", c, 1, "into", &c->in[0].shape);
}

static sn_cost cost(const sn_call *c) { return (sn_cost){.bytes = (double)sn_tensor_bytes(&c->in[0])}; }

const sn_op sn_op_store = {.name = "store",
                           .min_in = 2,
                           .max_in = 2,
                           .n_out = 0,
                           .mutates = 2,
                           .shape = shape,
                           .accepts = sn_accepts_any,
                           .cost = cost,
                           .kernels = {sn_store_cpu}};
