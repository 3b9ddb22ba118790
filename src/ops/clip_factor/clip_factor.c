#include "ops/clip_factor/clip_factor.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const sn_shape eight = sn_shape_of(8);
    SN_TRY(sn_need_rank("clip_factor", c, 0, "norms", 1));
    SN_TRY(sn_need_form("clip_factor", c, 0, "norms", SN_F64));
    SN_TRY(sn_need_shape("clip_factor", c, 1, "hyper", &eight));
    SN_TRY(sn_need_form("clip_factor", c, 1, "hyper", SN_F32));
    if (!(c->attrs.f[SN_CLIP_FACTOR_MAX_NORM] >= 0))
        return sn_fail(SN_ERR_SHAPE, "clip_factor: max_norm must be 0 or more, found %g", c->attrs.f[SN_CLIP_FACTOR_MAX_NORM]);
    sn_set_out(c, 0, SN_F32, sn_shape_of(4));
    return SN_OK;
}

const sn_op sn_op_clip_factor = {.name = "clip_factor",
                                 .min_in = 2,
                                 .max_in = 2,
                                 .n_out = 1,
                                 .int_attrs = {"late"},
                                 .float_attrs = {"max_norm"},
                                 .shape = shape,
                                 .kernels = {sn_clip_factor_cpu}};
