#include "ops/shift/shift.h"

#include "graph/split.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t axis = c->attrs.i[SN_SHIFT_AXIS];
    SN_TRY(sn_need_any("shift", c, 0, "x"));
    if (axis < 0 || axis >= SN_MESH_AXES) return sn_fail(SN_ERR_SHAPE, "shift: no mesh axis %lld", (long long)axis);
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 1, 1); }

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    (void)input;
    (void)form;
    return true;
}

const sn_op sn_op_shift = {.name = "shift",
                           .min_in = 1,
                           .max_in = 1,
                           .n_out = 1,
                           .int_attrs = {"axis"},
                           .comm_axis = 1 + SN_SHIFT_AXIS,
                           .shape = shape,
                           .axes = axes,
                           .accepts = accepts,
                           .kernels = {sn_shift_cpu}};
