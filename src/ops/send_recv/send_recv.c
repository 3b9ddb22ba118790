#include "ops/send_recv/send_recv.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t *i = c->attrs.i, from = i[SN_SEND_RECV_FROM], to = i[SN_SEND_RECV_TO];
    SN_TRY(sn_need_any("send_recv", c, 0, "x"));
    SN_TRY(sn_need_mesh_axis("send_recv", i[SN_SEND_RECV_AXIS]));
    if (from < 0 || to < 0 || from == to)
        return sn_fail(SN_ERR_SHAPE, "send_recv: from and to must be two ranks of the axis, found %lld and %lld", (long long)from,
                       (long long)to);
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 1, 1); }

static sn_cost cost(const sn_call *c) { return (sn_cost){.bytes = (double)sn_tensor_bytes(sn_has(c, 0) ? &c->in[0] : &c->out[0])}; }

const sn_op sn_op_send_recv = {.name = "send_recv",
                               .min_in = 1,
                               .max_in = 1,
                               .n_out = 1,
                               .int_attrs = {"axis", "from", "to"},
                               .comm_axis = 1 + SN_SEND_RECV_AXIS,
                               .comm_from = 1 + SN_SEND_RECV_FROM,
                               .shape = shape,
                               .axes = axes,
                               .accepts = sn_accepts_any,
                               .cost = cost,
                               .kernels = {sn_send_recv_cpu}};
