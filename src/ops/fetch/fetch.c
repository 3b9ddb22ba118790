#include "ops/fetch/fetch.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("fetch", c, 0, "x"));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static sn_cost cost(const sn_call *c) { return (sn_cost){.bytes = (double)sn_tensor_bytes(&c->in[0])}; }

const sn_op sn_op_fetch = {.name = "fetch",
                           .min_in = 1,
                           .max_in = 1,
                           .n_out = 1,
                           .shape = shape,
                           .accepts = sn_accepts_any,
                           .cost = cost,
                           .kernels = {sn_fetch_cpu}};
