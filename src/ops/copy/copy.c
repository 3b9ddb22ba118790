#include "ops/copy/copy.h"

#include "ops/rules.h"
#include "program/program.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("copy", c, 0, "x"));
    if (c->attrs.i[SN_COPY_TIER] < 0 || c->attrs.i[SN_COPY_TIER] >= SN_TIER_COUNT)
        return sn_fail(SN_ERR_SHAPE, "copy: no tier %lld", (long long)c->attrs.i[SN_COPY_TIER]);
    sn_set_no_out(c, 0);
    if (!sn_has(c, 1)) {
        sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
        return SN_OK;
    }
    SN_TRY(sn_need_form("copy", c, 1, "into", c->in[0].dtype));
    return sn_need_shape("copy", c, 1, "into", &c->in[0].shape);
}

static const char *axes(const sn_call *c) {
    return sn_has(c, 1) ? sn_axes_same(c->in[0].shape.rank, 2, 0) : sn_axes_same(c->in[0].shape.rank, 1, 1);
}
static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    (void)node;
    if (want[0]) din[0] = dout[0];
    return g->status;
}

const sn_op sn_op_copy = {.name = "copy",
                          .min_in = 1,
                          .max_in = 2,
                          .n_out = 1,
                          .mutates = 2,
                          .into = 2,
                          .linear = 1u << 0,
                          .int_attrs = {"tier"},
                          .shape = shape,
                          .axes = axes,
                          .accepts = sn_accepts_any,
                          .grad = grad,
                          .kernels = {sn_copy_cpu}};
