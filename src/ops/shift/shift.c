#include "ops/shift/shift.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("shift", c, 0, "x"));
    SN_TRY(sn_need_mesh_axis("shift", c->attrs.i[SN_SHIFT_AXIS]));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 1, 1); }

const sn_op sn_op_shift = {.name = "shift",
                           .min_in = 1,
                           .max_in = 1,
                           .n_out = 1,
                           .int_attrs = {"axis"},
                           .comm_axis = 1 + SN_SHIFT_AXIS,
                           .shape = shape,
                           .axes = axes,
                           .accepts = sn_accepts_any,
                           .kernels = {sn_shift_cpu}};
